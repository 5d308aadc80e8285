"""Docstrings say "Example:", as people would; griffe knows the section as "Examples:"."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Renames the section in each docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
