"""Convert values to plain JSON data, and back."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, cast

from treefold.core.errors import InvalidValueError, SerializationError
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


def jsonable(value: Any, **how: Any) -> Any:
    """Return *value* as JSON data made by pydantic; sets have the same order in every process."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - slow

    plain = to_jsonable_python(value, **how)
    if type(plain) in {list, dict}:
        # Foreign code may raise anything, and so do sets whose items are not hashable as JSON data.
        with suppress(Exception):
            return _in_order(_dumper()(value), plain)
    return plain


@cache
def _dumper() -> Any:
    from pydantic_core import SchemaSerializer, core_schema  # noqa: PLC0415 - slow

    # In Python mode, sets stay sets.
    return SchemaSerializer(core_schema.any_schema()).to_python


def _in_order(value: Any, plain: Any) -> Any:
    """Return *plain* with each list that is a set in *value* sorted by the JSON of its items."""
    if isinstance(value, set | frozenset):
        return sorted(cast("list[Any]", plain), key=json.dumps)
    if isinstance(value, dict) and isinstance(plain, dict):
        items = cast("dict[Any, Any]", value).values()
        pairs = zip(cast("dict[str, Any]", plain).items(), items, strict=True)
        return {key: _in_order(item, shown) for (key, shown), item in pairs}
    if isinstance(value, list | tuple) and isinstance(plain, list):
        pairs = zip(cast("list[Any]", value), cast("list[Any]", plain), strict=True)
        return [_in_order(item, shown) for item, shown in pairs]
    return plain


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
