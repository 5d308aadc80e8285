"""The JSON form of events, views and what they consist of, and its JSON Schema.

Both are made from the types of the fields, so they cannot differ. An object has the fields of its
class, under the same names. Texts and values longer than a limit are cut, and values that have no
JSON form are replaced, as ``json_values`` says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from treefold.core.json_values import as_data, encodable
from treefold.core.truncation import truncate

SCHEMA: Final = 1  # changes if a field changes its meaning or is removed
LIMIT: Final = 100_000  # characters of one text or value

# The metadata of a field that is not in the JSON form, and of one that has another name there.
HIDDEN: Final[Mapping[str, Any]] = {"json": None}
NODE: Final[Mapping[str, Any]] = {"json": "node"}
FUNCTION: Final[Mapping[str, Any]] = {"json": "function"}

JsonSchema = dict[str, Any]


class _Limits(NamedTuple):
    """How much is encoded: the characters of each text or value, and the levels of objects."""

    characters: int | None
    levels: int = 100


Encode = Callable[[Any, _Limits], Any]


class _Form(NamedTuple):
    """How values of one type are encoded, and the schema of the result."""

    encode: Encode
    schema: JsonSchema


class _Field(NamedTuple):
    """A field in JSON: its name there, the attribute, and the form of its value."""

    name: str
    attribute: str
    form: _Form


def json_form(value: Any, limit: int | None) -> dict[str, Any]:
    """Return an object of a dataclass as JSON data that says what it is."""
    return {"schema": SCHEMA, "type": type(value).__name__, **json_fields(value, limit)}


def json_fields(value: Any, limit: int | None) -> dict[str, Any]:
    """Return the fields of an object of a dataclass as JSON data."""
    return _encode_object(value, _Limits(limit))


def json_schema(title: str, kinds: Sequence[type]) -> JsonSchema:
    """Return the JSON Schema of what ``json_form`` returns for objects of these classes."""
    defs: dict[str, JsonSchema] = {}
    pending = list(kinds)
    while pending:
        kind = pending.pop()
        if kind.__name__ not in defs:
            defs[kind.__name__] = _object_schema(kind)
            pending += _classes_in(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "oneOf": [_tagged_schema(kind, schema=SCHEMA) for kind in kinds],
        "$defs": dict(sorted(defs.items())),
    }


def _object_schema(kind: type) -> JsonSchema:
    properties = {field.name: field.form.schema for field in _fields(kind)}
    return {
        "description": (kind.__doc__ or "").partition("\n")[0],
        "type": "object",
        "properties": properties,
        "required": [*properties],
    }


def _tagged_schema(kind: type, **tags: Any) -> JsonSchema:
    tags["type"] = kind.__name__
    properties = {name: {"const": value} for name, value in tags.items()}
    return {"properties": properties, "required": [*tags], **_reference(kind)}


def _reference(kind: type) -> JsonSchema:
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _classes_in(kind: type) -> list[type]:
    """Return the dataclasses that the fields of *kind* are of."""
    found: list[type] = []
    pending = [hint for _, hint in _hints(kind)]
    while pending:
        hint = pending.pop()
        pending += get_args(hint)
        if isinstance(hint, type) and is_dataclass(hint):
            found += _choices(hint) or [hint]
    return found


def subclasses_of(kind: type) -> list[type]:
    """Return the direct subclasses of *kind*, by name."""
    # A dataclass with slots is made from another class of the same name, which may still be there.
    by_name = {one.__name__: one for one in kind.__subclasses__()}
    return [one for _, one in sorted(by_name.items())]


# How each class is encoded: computed once from its annotations.


@cache
def _fields(kind: type) -> list[_Field]:
    names = {one.name: one.metadata.get("json", one.name) for one in fields(kind)}
    return [_Field(names.get(name, name), name, _form(hint)) for name, hint in _hints(kind)]


def _hints(kind: type) -> list[tuple[str, Any]]:
    """Return the attributes that are in the JSON form, each with its type."""
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind) if one.metadata.get("json", one.name) is not None]
    return [(name, hints[name]) for name in names] + [
        (name, get_type_hints(getattr(kind, name).fget)["return"])
        for name in getattr(kind, "json_properties", ())
    ]


def _choices(kind: type) -> list[type]:
    """Return the classes of the values of a field, if *kind* is only their base."""
    return [] if fields(kind) else subclasses_of(kind)


@cache
def _form(hint: Any) -> _Form:
    if (form := _SIMPLE.get(hint)) is not None:
        return form
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return _optional(args)
    if origin is tuple:
        return _array(_form(args[0]))
    if origin is Mapping:
        return _Form(_encode_arguments, {"type": "object"})
    if origin is Literal:
        return _Form(_encode_same, {"enum": list(args)})
    if issubclass(hint, StrEnum):
        return _Form(_encode_enum, {"enum": [one.value for one in hint]})
    if kinds := _choices(hint):
        return _Form(_encode_tagged, {"oneOf": [_tagged_schema(kind) for kind in kinds]})
    return _Form(_encode_object, _reference(hint))


def _optional(kinds: tuple[Any, ...]) -> _Form:
    # Amounts of money may be given as other types, but are stored as Decimal.
    hint = Decimal if Decimal in kinds else next(one for one in kinds if one is not NoneType)
    inner = _form(hint)

    def encode(value: Any, limits: _Limits) -> Any:
        return None if value is None else inner.encode(value, limits)

    return _Form(encode, {"anyOf": [inner.schema, {"type": "null"}]})


def _array(inner: _Form) -> _Form:
    def encode(items: Sequence[Any], limits: _Limits) -> list[Any]:
        # A tree may be deeper than JSON parsers, and Python's stack, allow.
        if items and limits.levels == 0:
            return [{"$more": len(items)}]
        return [inner.encode(item, limits) for item in items]

    return _Form(encode, {"type": "array", "items": inner.schema})


# Values


def money(dollars: Decimal) -> str:
    """Return dollars as text, without zeros at the end."""
    shown = f"{dollars:f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _encode_object(value: Any, limits: _Limits) -> dict[str, Any]:
    inner = _Limits(limits.characters, limits.levels - 1)
    return {
        name: form.encode(getattr(value, attribute), inner)
        for name, attribute, form in _fields(cast("type[Any]", type(value)))
    }


def _encode_tagged(value: Any, limits: _Limits) -> dict[str, Any]:
    return {"type": type(value).__name__, **_encode_object(value, limits)}


def _encode_any(value: Any, limits: _Limits) -> Any:
    return as_data(value, limits.characters)


def _encode_arguments(given: Mapping[str, Any], limits: _Limits) -> dict[str, Any]:
    return {encodable(name): as_data(value, limits.characters) for name, value in given.items()}


def _encode_text(given: str, limits: _Limits) -> str:
    limit = limits.characters
    return encodable(given if limit is None else truncate(given, limit))


def _encode_same(value: Any, limits: _Limits) -> Any:
    return value


def _encode_float(value: float, limits: _Limits) -> float | None:
    # Times are finite; a timeout that is not is the same as none.
    return value if math.isfinite(value) else None


def _encode_enum(value: StrEnum, limits: _Limits) -> str:
    return value.value


def _encode_money(value: Decimal, limits: _Limits) -> str:
    return money(value)


def _encode_time(value: datetime, limits: _Limits) -> float:
    return value.timestamp()


_SIMPLE: Final[dict[Any, _Form]] = {
    Any: _Form(_encode_any, {}),
    str: _Form(_encode_text, {"type": "string"}),
    bool: _Form(_encode_same, {"type": "boolean"}),
    int: _Form(_encode_same, {"type": "integer"}),
    float: _Form(_encode_float, {"type": "number"}),
    Decimal: _Form(_encode_money, {"type": "string"}),
    datetime: _Form(_encode_time, {"type": "number"}),
}
