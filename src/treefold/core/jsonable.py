"""The JSON data that pydantic makes of a value, or what stands for one that has none."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final, cast

import msgspec

from treefold.core.fact import Fact
from treefold.core.truncation import truncated_repr

_REPR: Final = 500  # characters


class Unserializable(Fact, frozen=True):
    """Stands for a value that has no JSON form: the name of its type, and its repr.

    Example:
        >>> from treefold.core.jsonable import Unserializable
        >>> Unserializable("Socket", "<Socket open>")
        <Socket open>
    """

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


def jsonable(value: Any, **how: Any) -> Any:
    """Return *value* as JSON data made by pydantic; sets have the same order in every process."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - slow

    plain = to_jsonable_python(value, fallback=_plain_struct, **how)
    if type(plain) in {list, dict}:
        # Foreign code may raise anything, and so do sets whose items are not hashable as JSON data.
        with suppress(Exception):
            return _in_order(_dumper()(value), plain)
    return plain


@cache
def _dumper() -> Any:
    from pydantic_core import SchemaSerializer, core_schema  # noqa: PLC0415 - slow

    # In Python mode, sets stay sets.
    return partial(SchemaSerializer(core_schema.any_schema()).to_python, fallback=_plain_struct)


def _plain_struct(value: Any) -> Any:
    """Return a struct as a dict; pydantic does not know structs."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


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


def as_json(value: Any, bytes_mode: str = "utf8") -> Any:
    """Return an object as plain data, or as an Unserializable if it has no JSON form.

    Bytes in it become text by default, which is what pydantic expects when it restores the object.
    """
    # Foreign code may raise anything. An iterator is not read: that can be done only once.
    with suppress(Exception):
        if not isinstance(value, Iterator):
            return jsonable(value, inf_nan_mode="constants", bytes_mode=bytes_mode)
    return unserializable(value)


def unserializable(value: Any) -> Unserializable:
    """Return what stands for *value*, which has no JSON form."""
    return Unserializable(type(value).__name__, truncated_repr(value, _REPR))
