"""Server-sent events that carry JSON: bytes in, objects out.

Knows lines and JSON, not the providers' protocols. It tolerates servers that violate the format:
comments, invalid data, missing blank lines, JSON over several lines, or one JSON body instead of
a stream.
"""

from typing import Any, Final, cast

from treefold.models.json_text import ObjectScanner, ValueCounter, parse_json
from treefold.models.profiles import VALUE_CHARS

# The object for "data: [DONE]"; compared by identity.
DONE: Final[dict[str, Any]] = {"treefold": "done"}

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024  # a longer event is taken for a broken stream
# Of an event, for each character that a response may have: as UTF-8, and with other fields.
_BYTES_PER_CHAR: Final = 4
_LONG_EVENT: Final = 64 * 1024  # bytes; it is checked before it is parsed
MAX_OTHER_BYTES: Final = 1024 * 1024  # of lines that are not server-sent events
MAX_SHOWN: Final = 200  # characters kept of the first invalid event
_BOM: Final = b"\xef\xbb\xbf"


class BrokenStreamError(Exception):
    """The stream ended or broke before the response was complete; a retry may help."""


class JsonEventParser:
    """Returns the JSON objects of a stream whose bytes arrive in chunks of any size.

    Args:
        max_chars: of the response; an event may have a few times as many bytes. None for any
            number.

    Attributes:
        invalid: the number of data lines that are not JSON.
        first_invalid: the beginning of the first of them.
    """

    def __init__(self, max_chars: int | None = None) -> None:
        self._max_event = MAX_EVENT_BYTES
        if max_chars is not None:
            self._max_event = max(_LONG_EVENT, _BYTES_PER_CHAR * max_chars)
        self.invalid = 0
        self.first_invalid = ""
        self._tail: list[bytes] = []  # an incomplete line
        self._tail_size = 0
        self._pending: list[str] = []  # data lines that are not JSON on their own
        self._pending_size = 0
        self._scanner = ObjectScanner()  # of these lines
        self._others: list[str] = []  # lines that are not events: perhaps of one JSON body
        self._others_size = 0
        self._begun = False

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Parse *data* and return the objects that it completes."""
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
            text = line.rstrip(b"\r").decode("utf-8", "replace")
            if len(text) > _LONG_EVENT:
                self._check_size(len(text) + VALUE_CHARS * ValueCounter().feed(text))
            # The usual cases, which need no further checks: an event on one line, a blank line.
            if not self._pending:
                if text.startswith("data: {") and type(value := parse_json(text[6:])) is dict:
                    found.append(value)  # pyright: ignore[reportUnknownArgumentType]
                    continue
                if not text:
                    continue
            self._parse_line(text, found)
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            self._check_size(self._tail_size)
        return found

    def end(self) -> list[dict[str, Any]]:
        """Return the objects that the last line completes; there is no more data."""
        found: list[dict[str, Any]] = []
        last = b"".join(self._tail)
        if last:
            last = last if self._begun else last.removeprefix(_BOM)
            self._parse_line(last.rstrip(b"\r").decode("utf-8", "replace"), found)
        self._dispatch(found)
        body = _object("\n".join(self._others))
        return found if body is None else [*found, body]

    def _parse_line(self, line: str, found: list[dict[str, Any]]) -> None:
        if not line:
            self._dispatch(found)
        elif line.startswith("data:"):
            self._parse_data(line[5:].strip(), found)
        elif line.startswith((":", "event:", "id:", "retry:")):
            pass
        elif line.startswith("error:"):  # llama.cpp
            if (error := _object(line[6:])) is not None:
                found.append({"error": error})
        # "data:" is missing.
        elif line.startswith("{") and (value := _object(line)) is not None:
            found.append(value)
        elif self._others_size < MAX_OTHER_BYTES:
            self._others_size += len(line)
            self._others.append(line)

    def _parse_data(self, data: str, found: list[dict[str, Any]]) -> None:
        if data == "[DONE]":
            if self._pending:
                self._dispatch(found)
            found.append(DONE)
            return
        whole = None if self._pending else _object(data)
        if whole is None and data:
            self._pending.append(data)
            self._pending_size += len(data)
            self._check_size(self._pending_size)
            whole = self._ended_object(data)
        if whole is not None:
            found.append(whole)

    def _ended_object(self, data: str) -> dict[str, Any] | None:
        """Return the object of the pending lines if *data*, the last of them, is its end.

        The blank line after an event may be missing, so an object may end with any line.
        """
        had_ended = self._scanner.is_complete
        self._scanner.feed(data)
        if had_ended or not self._scanner.is_complete:
            return None
        whole = _object("\n".join(self._pending))
        if whole is not None:
            self._clear_pending()
        return whole

    def _check_size(self, size: int) -> None:
        if size > self._max_event:
            raise BrokenStreamError(
                f"the server sent an event of more than {self._max_event:,} bytes"
            )

    def _clear_pending(self) -> None:
        self._pending.clear()
        self._pending_size = 0
        self._scanner = ObjectScanner()

    def _dispatch(self, found: list[dict[str, Any]]) -> None:
        """End an event: of data that is not JSON as a whole, parse the lines that are."""
        for line in self._pending:
            if (value := _object(line)) is not None:
                found.append(value)
            else:
                self.invalid += 1
                self.first_invalid = self.first_invalid or line[:MAX_SHOWN]
        self._clear_pending()


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that *text* is; None if it is anything else."""
    value = parse_json(text)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
