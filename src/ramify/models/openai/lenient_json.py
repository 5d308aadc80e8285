"""JSON that was cut off or written by hand, mended where only one reading is likely."""

import json
import re
from typing import Any, cast

_CLOSERS = {"{": "}", "[": "]"}
_FENCE = re.compile(r"^```(?:json)?\s*|\s*```$")
_TRAILING_COMMA = re.compile(r",\s*([}\]])")


def repaired(text: str) -> dict[str, Any] | None:
    """Return the object that *text* was going to be, or None."""
    text = _FENCE.sub("", text.strip())
    for candidate in (text, _closed(text), _closed(text[: _last_comma(text)])):
        for attempt in (candidate, _TRAILING_COMMA.sub(r"\1", candidate)):
            try:
                value = json.loads(attempt, strict=False)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return cast("dict[str, Any]", value)
    return None


def _last_comma(text: str) -> int:
    """Return where what may be half a pair begins."""
    return max(text.rfind(","), 0)


def _closed(text: str) -> str:
    """Close every string, list and object that is open at the end of *text*."""
    open_ones: list[str] = []
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        elif character in _CLOSERS:
            open_ones.append(_CLOSERS[character])
        elif open_ones and character == open_ones[-1]:
            open_ones.pop()
    if in_string:
        text = text[:-1] if escaped else text
        text += '"'
    text = text.rstrip()
    if text.endswith(","):
        text = text[:-1]
    elif text.endswith(":"):
        text += "null"
    return text + "".join(reversed(open_ones))
