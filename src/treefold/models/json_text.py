"""JSON as text and back, safe from what servers and models write.

One place, so that no reader forgets that JSON may be a thousand levels deep, not JSON at all, or
hold a NaN, which other readers of the same text would refuse.
"""

import json
from typing import Any, Final, NoReturn, cast

from treefold.models.characters import whole


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_strict = json.JSONDecoder(parse_constant=_refuse)
_tolerant = json.JSONDecoder(parse_constant=lambda _: None)


_KINDS: Final[dict[type, str]] = {
    list: "a list",
    str: "a string",
    bool: "true or false",
    type(None): "null",
}


def parsed(text: str) -> Any:
    """Return the value of *text*, NaN and the like as None; None if it is not JSON."""
    try:
        return _tolerant.decode(text)
    except (ValueError, RecursionError):
        return None


def parsed_object(text: str) -> dict[str, Any] | None:
    """Return *text* as an object that any reader of JSON would see; None if it is none."""
    try:
        value = _strict.decode(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def why_no_object(text: str) -> str:
    """Return why *text* is not an object that any reader of JSON would see."""
    try:
        value: object = _strict.decode(text)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return f"an object is needed, not {_KINDS.get(type(value), 'a number')}"


def compact(value: Any) -> str:
    """Return *value* as JSON text without spaces, in characters that can be sent.

    Raises:
        ValueError, TypeError: it has no JSON form.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return whole(text)


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in *value*, if it is a list."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
