"""Repairs JSON that was cut off or is slightly malformed, where one reading is likely.

Nothing that the model wrote is dropped: a call with half of its arguments is worse than none.
"""

import re
from typing import Any, Final, cast

from treefold.models.json_text import parse_json

_CLOSERS: Final = {"{": "}", "[": "]"}
_UNCHANGED: Final = re.compile(r'[^"\\\n\r\t]+')  # in a string
_LITERALS: Final = ("true", "false", "null")


def repair_json(text: str) -> dict[str, Any] | None:
    """Return the object that *text* was meant to be, or None."""
    value = parse_json(_JsonRepairer().repair(_without_fence(text.strip())))
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _without_fence(text: str) -> str:
    if text.startswith("```"):
        text = text.removeprefix("```json").removeprefix("```")
    return text.rstrip().removesuffix("```").strip()


class _JsonRepairer:
    """Scans a text once, and closes the strings, lists and objects that are open at its end."""

    def __init__(self) -> None:
        self._open: list[str] = []  # the closing bracket of each open list and object
        self._in_string = False
        self._escaped = False
        self._written: list[str] = []

    def repair(self, text: str) -> str:
        at = 0
        while at < len(text):
            if not self._in_string:
                self._scan(text[at])
                at += 1
            # Strings may be long: what needs no change is copied at once.
            elif not self._escaped and (run := _UNCHANGED.match(text, at)):
                self._written.append(run[0])
                at = run.end()
            else:
                self._scan_in_string(text[at])
                at += 1
        self._finish(text)
        return "".join(self._written)

    def _scan_in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
        elif character in "\n\r\t":  # JSON requires these to be escaped
            character = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
        self._written.append(character)

    def _scan(self, character: str) -> None:
        if character == '"':
            self._in_string = True
        elif character in _CLOSERS:
            self._open.append(_CLOSERS[character])
        elif character in "}]":
            self._drop_comma()
            if self._open and self._open[-1] == character:
                self._open.pop()
        self._written.append(character)

    def _drop_comma(self) -> None:
        """Remove a trailing comma."""
        while self._written and self._written[-1].isspace():
            self._written.pop()
        if self._written and self._written[-1] == ",":
            self._written.pop()

    def _finish(self, text: str) -> None:
        if self._in_string:
            if self._escaped:
                self._written.pop()
            self._written.append('"')
        else:
            word = text[len(text.rstrip("abcdefghijklmnopqrstuvwxyz")) :]
            for literal in _LITERALS:
                if word and literal.startswith(word):
                    self._written.append(literal[len(word) :])
            self._drop_comma()
            if self._written and self._written[-1] == ":":
                self._written.append("null")
        self._written.extend(reversed(self._open))
