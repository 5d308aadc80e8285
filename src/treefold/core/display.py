"""How notebooks and rich show a call: as the tree below it."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any


class Displayed:
    """A base class with the methods that IPython and rich look for.

    They are implemented in ``views``, a higher folder, which is imported when one is called.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return import_module("treefold.views.notebook").html_of(self)

    def _repr_mimebundle_(self, **_options: Any) -> dict[str, str]:
        # Where HTML cannot be shown: in IPython on a terminal, for example.
        return {"text/plain": import_module("treefold.views.notebook").text_of(self)}

    def __rich_console__(self, _console: Any, options: Any) -> Iterator[Any]:
        return import_module("treefold.views.notebook").segments_of(self, options.max_width)
