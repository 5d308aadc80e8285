"""Server-sent events that carry JSON: bytes in, values out.

Knows lines and JSON, not protocols. It is made for servers that bend the rules: comments, junk,
missing blank lines, JSON over several lines, or one JSON body instead of a stream.
"""

from typing import Any, Final

from treefold.models.json_text import parse_json

DONE: Final[dict[str, Any]] = {
    "treefold": "done"
}  # stands for "data: [DONE]"; compared by identity

LONGEST: Final = 64 * 1024 * 1024  # bytes in one event; who sends more is not sending events
MOST_OTHERS: Final = 1024 * 1024  # bytes in lines of no kind
SHOWN: Final = 200  # characters of junk that are kept
_BOM: Final = b"\xef\xbb\xbf"


class BrokenStreamError(Exception):
    """The stream ended, or went wrong, before the response was complete; trying again may help."""


class JsonEvents:
    """Takes in bytes in any portions and gives the JSON objects that they hold."""

    def __init__(self) -> None:
        self.junk = 0  # how much was meant as data and is not JSON
        self.first_junk = ""
        self._tail: list[bytes] = []  # the beginning of a line
        self._tail_size = 0
        self._pending: list[str] = []  # data lines that are not JSON by themselves
        self._pending_size = 0
        self._others: list[str] = []  # lines of no kind: perhaps one JSON body, line by line
        self._others_size = 0
        self._begun = False

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take in *data* and return the objects that it completes."""
        lines = data.split(b"\n")
        rest = lines.pop()
        found: list[dict[str, Any]] = []
        if lines:
            lines[0] = b"".join([*self._tail, lines[0]])
            self._tail.clear()
            self._tail_size = 0
            if not self._begun:
                self._begun = True
                lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if line.startswith(b"data: {") and not self._pending:  # the usual case
                value = parse_json(line[6:].decode("utf-8", "replace"))
                if type(value) is dict:
                    found.append(value)  # pyright: ignore[reportUnknownArgumentType]
                    continue
            self._take(line.decode("utf-8", "replace").rstrip("\r"), found)
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            _check_size(self._tail_size)
        return found

    def end(self) -> list[dict[str, Any]]:
        """Return what the last line completes, there being no more."""
        found: list[dict[str, Any]] = []
        last = b"".join(self._tail)
        if last:
            last = last if self._begun else last.removeprefix(_BOM)
            self._take(last.decode("utf-8", "replace").rstrip("\r"), found)
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
        elif line.startswith("{") and (values := _objects([line])):  # without "data:"
            found.extend(values)
        elif self._others_size < MOST_OTHERS:
            self._others_size += len(line)
            self._others.append(line)

    def _take_data(self, data: str, found: list[dict[str, Any]]) -> None:
        if data == "[DONE]":
            self._dispatch(found)
            found.append(DONE)
            return
        whole = data.endswith("}")  # perhaps the end of an object: blank lines may be missing
        if whole and (values := _objects(["\n".join([*self._pending, data])])):
            self._pending.clear()
            self._pending_size = 0
            found.extend(values)
        elif data:
            self._pending.append(data)
            self._pending_size += len(data)
            _check_size(self._pending_size)

    def _dispatch(self, found: list[dict[str, Any]]) -> None:
        """An event is over: of data that is not JSON as a whole, take the lines that are."""
        for line in self._pending:
            if values := _objects([line]):
                found.extend(values)
            else:
                self.junk += 1
                self.first_junk = self.first_junk or line[:SHOWN]
        self._pending.clear()
        self._pending_size = 0


def _check_size(size: int) -> None:
    if size > LONGEST:
        raise BrokenStreamError(f"the server sent an event of over {LONGEST:,} bytes")


def _objects(texts: list[str]) -> list[dict[str, Any]]:
    """Return those of *texts* that are JSON objects."""
    values = [parse_json(text) for text in texts]
    return [value for value in values if isinstance(value, dict)]
