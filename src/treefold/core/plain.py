"""Values as plain JSON data and back."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, cast

from treefold.core.errors import InvalidValueError, SerializationError
from treefold.core.frames import shortened


def to_plain(value: Any, what: str) -> Any:
    """Return *value* as data that any JSON encoder accepts.

    Raises:
        SerializationError: it has no JSON form; *what* says in the message what it is.
    """
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415 - slow

    fault: object = "it can be read only once"
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
    """Return what pydantic makes of *value* for JSON, sets in the same order in every process."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - slow

    plain = to_jsonable_python(value, **how)
    if type(plain) in {list, dict}:
        with suppress(Exception):  # foreign code, or a set of what cannot be in one as plain data
            return _in_order(_dumper()(value), plain)
    return plain


@cache
def _dumper() -> Any:
    from pydantic_core import SchemaSerializer, core_schema  # noqa: PLC0415 - slow

    return SchemaSerializer(core_schema.any_schema()).to_python  # in which sets are still sets


def _in_order(value: Any, plain: Any) -> Any:
    """Return *plain* with what was a set in *value* in the order of its texts."""
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
    """Return plain data as *annotation* would have it, or as it is if it does not fit that."""
    from pydantic import PydanticUserError, TypeAdapter, ValidationError  # noqa: PLC0415 - slow

    try:
        return TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except (PydanticUserError, ValidationError, NameError, TypeError):
        return value


def explained(error: Any, whole: str) -> str:
    """Return what a ValidationError of pydantic says, in one line; *whole* was checked."""
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or whole}: {fault['msg']}"
        f" (got {shortened(fault['input'])})"
        for fault in error.errors(include_url=False)
    )


def required_key(data: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return what saved *data* of a *kind* holds under *key*.

    Raises:
        InvalidValueError: it holds nothing there.
    """
    if not isinstance(data, Mapping) or key not in data:
        raise InvalidValueError(f"not a saved {kind.__name__}, it has no {key!r}: {data!r}")
    return data[key]
