"""Server-sent events that carry JSON: bytes in, values out.

Knows lines and JSON, not protocols. It is made for servers that bend the rules: comments, junk,
missing blank lines, JSON over several lines, or one JSON body instead of a stream.
"""

import json
from typing import Any, Final, cast

DONE: Final[dict[str, Any]] = {"ramify": "done"}  # stands for "data: [DONE]"; compared by identity

LONGEST_LINE: Final = 64 * 1024 * 1024  # bytes; a server that sends more is not sending events

MOST_OTHERS: Final = 10_000  # lines that are no events
SHOWN: Final = 200  # characters of junk that are kept


class BrokenStreamError(Exception):
    """The stream ended, or went wrong, before the response was complete; trying again may help."""


class JsonEvents:
    """Takes in bytes in any portions and gives the JSON objects that they hold."""

    def __init__(self) -> None:
        self.junk: list[str] = []  # what was meant as data and is not JSON
        self._tail: list[bytes] = []  # the beginning of a line
        self._tail_size = 0
        self._pending: list[str] = []  # data lines that are not JSON by themselves
        self._others: list[str] = []  # lines of no kind: perhaps one JSON body, line by line

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take in *data* and return the objects that it completes."""
        lines = data.split(b"\n")
        rest = lines.pop()
        found: list[dict[str, Any]] = []
        if lines and self._tail:
            lines[0] = b"".join([*self._tail, lines[0]])
            self._tail.clear()
            self._tail_size = 0
        for line in lines:
            if line.startswith(b"data: {") and not self._pending:
                try:
                    found.append(json.loads(line[6:].decode("utf-8", "replace")))
                    continue
                except ValueError:
                    pass
            self._take(line.decode("utf-8", "replace").rstrip("\r"), found)
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            if self._tail_size > LONGEST_LINE:
                raise BrokenStreamError(f"the server sent a line of over {LONGEST_LINE:,} bytes")
        return found

    def end(self) -> list[dict[str, Any]]:
        """Return what the last line completes, there being no more."""
        found: list[dict[str, Any]] = []
        if self._tail:
            self._take(b"".join(self._tail).decode("utf-8", "replace").rstrip("\r"), found)
        self._dispatch(found)
        return found + _objects(["\n".join(self._others)])

    def _take(self, line: str, found: list[dict[str, Any]]) -> None:
        if not line:
            self._dispatch(found)
        elif line.startswith("data:"):
            self._take_data(line[5:].strip(), found)
        elif line.startswith((":", "event:", "id:", "retry:")):
            pass
        elif line.startswith("error:"):  # llama.cpp
            found.extend({"error": error} for error in _objects([line[6:]]))
        elif line.startswith("{") and (objects := _objects([line])):  # without "data:"
            found.extend(objects)
        elif len(self._others) < MOST_OTHERS:
            self._others.append(line)

    def _take_data(self, data: str, found: list[dict[str, Any]]) -> None:
        if data == "[DONE]":
            self._dispatch(found)
            found.append(DONE)
        elif objects := _objects(["\n".join([*self._pending, data])]):
            self._pending.clear()
            found.extend(objects)
        elif data:
            self._pending.append(data)

    def _dispatch(self, found: list[dict[str, Any]]) -> None:
        """An event is over: of data that is not JSON as a whole, take the lines that are."""
        if self._pending:
            found.extend(_objects(self._pending))
            self.junk += [line[:SHOWN] for line in self._pending if not _objects([line])]
            self._pending.clear()


def _objects(texts: list[str]) -> list[dict[str, Any]]:
    """Return those of *texts* that are JSON objects."""
    found: list[dict[str, Any]] = []
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(cast("dict[str, Any]", value))
    return found
