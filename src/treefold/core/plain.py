"""Convert values to plain JSON data, and back."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from treefold.core.errors import InvalidValueError, SerializationError
from treefold.core.jsonable import jsonable
from treefold.core.truncation import truncated_repr


def to_plain(value: Any, what: str) -> Any:
    """Return *value* as data that any JSON encoder accepts.

    Raises:
        SerializationError: it has no JSON form; *what* names the value in the message.
    """
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415 - slow

    fault: object = "an iterator can be read only once"
    if not isinstance(value, Iterator):
        try:
            plain = jsonable(value)
            json.dumps(plain, allow_nan=False)
        except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
            fault = error
        else:
            return plain
    raise SerializationError(
        f"{what} has no JSON form ({fault}); use plain data, a dataclass or a pydantic model"
    )


def to_json(value: Any, what: str) -> str:
    """Return *value* as JSON text for people and models to read.

    Raises:
        SerializationError: it has no JSON form.
    """
    return json.dumps(to_plain(value, what), ensure_ascii=False)


def from_plain(annotation: Any, value: Any) -> Any:
    """Return plain data converted to *annotation*, or unchanged if it does not fit."""
    from pydantic import PydanticUserError, TypeAdapter, ValidationError  # noqa: PLC0415 - slow

    try:
        return TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except (PydanticUserError, ValidationError, NameError, TypeError):
        return value


def explained(error: Any, whole: str) -> str:
    """Return a pydantic ValidationError as one line; *whole* names the value that was checked."""
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or whole}: {fault['msg']}"
        f" (got {truncated_repr(fault['input'])})"
        for fault in error.errors(include_url=False)
    )


def required_key(data: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return the value under *key* in the saved *data* of an object of type *kind*.

    Raises:
        InvalidValueError: there is no such key.
    """
    if not isinstance(data, Mapping) or key not in data:
        raise InvalidValueError(f"not a saved {kind.__name__}, it has no {key!r}: {data!r}")
    return data[key]
