"""A response while it arrives: its text, and its typed result as far as the model has written it.

Reading it is what costs: a fragment that arrives is only appended to a list.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from treefold.core.fact import Fact
from treefold.core.model_events import TextDelta, TextWasThinking, ThinkingDelta, ToolUseDelta

_GROWTH: Final = 16  # the result is parsed again when it is longer by one part in this many


class OutputDelta(Fact, frozen=True):
    """A fragment of the JSON text of a typed result.

    Attributes:
        path: where the result is in the JSON value: the keys that lead to it.
        is_first: whether it begins a new text.
    """

    text: str
    path: tuple[str, ...] = ()
    is_first: bool = False


Delta = TextDelta | ThinkingDelta | TextWasThinking | ToolUseDelta | OutputDelta


class ArrivingResponse:
    """The fragments of one response; it changes while it arrives.

    Attributes:
        texts: the fragments of its text.
        has_grown: whether a fragment was added; the reader resets it.
    """

    __slots__ = ("_fragments", "_length", "_output", "_parsed", "_path", "has_grown", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.has_grown = False
        self._fragments: list[str] = []  # of the JSON text of the result
        self._length = 0
        self._parsed = 0  # the length when it was parsed last
        self._path: Sequence[str] = ()
        self._output: Any = None

    def add(self, delta: Delta) -> None:
        """Append a fragment."""
        self.has_grown = True
        if isinstance(delta, TextDelta):
            self.texts.append(delta.text)
        elif isinstance(delta, OutputDelta):
            if delta.is_first:
                self._fragments, self._length, self._parsed = [], 0, 0
                self._path, self._output = delta.path, None
            self._fragments.append(delta.text)
            self._length += len(delta.text)

    @property
    def output(self) -> Any:
        """The result so far as plain data, None if there is none; a new object when it has grown.

        To parse a text of n characters at each of its fragments would take time in proportion to
        the square of n. So it is parsed when it has grown by a sixteenth, and all that together
        takes about as long as parsing it 17 times.
        """
        length = self._length
        if length > self._parsed + self._parsed // _GROWTH:
            self._parsed = length
            self._parse()
        return self._output

    def _parse(self) -> None:
        from pydantic_core import from_json  # noqa: PLC0415 - slow, and few responses have a result

        # Not JSON, or not yet: the last result stays.
        with suppress(ValueError, KeyError, TypeError):
            found = from_json("".join(self._fragments), allow_partial="trailing-strings")
            for key in self._path:
                found = found[key]
            self._output = found
