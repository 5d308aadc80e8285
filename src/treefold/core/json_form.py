"""The JSON form of events, views and what they consist of, and its JSON Schema.

Both are made from the fields of a ``Fact``, so they cannot differ. An object has the fields of its
class, under the same names. Texts and values longer than a limit are cut, and values that have no
JSON form are replaced, as ``json_values`` says.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

import msgspec

from treefold.core.fact import HIDDEN, Fact, Write, fields_of, tag_of, writer_of
from treefold.core.json_values import as_data, encodable
from treefold.core.truncation import truncate

SCHEMA: Final = 1  # changes if a field changes its meaning or is removed
_BOUNDS: Final = (-sys.float_info.max, sys.float_info.max)
LIMIT: Final = 100_000  # characters of one text or value

JsonSchema = dict[str, Any]


class _Limits(NamedTuple):
    """How much is encoded: the characters of each text or value, and the levels of objects."""

    characters: int | None
    levels: int = 100


def json_form(fact: Fact, limit: int | None) -> dict[str, Any]:
    """Return *fact* as JSON data that says what it is."""
    return {"schema": SCHEMA, "type": type(fact).__name__, **_encode_fact(fact, _Limits(limit))}


def json_fields(fact: Fact, limit: int | None) -> dict[str, Any]:
    """Return the fields of *fact* as JSON data."""
    return _encode_fact(fact, _Limits(limit))


def _encode_fact(fact: Fact, limits: _Limits) -> dict[str, Any]:
    inner = _Limits(limits.characters, limits.levels - 1)
    kind = fact.__class__  # a LazyExchange says there that it is an exchange
    tag = tag_of(kind)
    encoded: dict[str, Any] = {} if tag is None else {"type": tag}
    for name, attribute, encode in _fields(kind):
        value = getattr(fact, attribute)
        encoded[name] = value if value is None or encode is None else encode(value, inner)
    return encoded


@cache
def _fields(kind: type[Fact]) -> list[tuple[str, str, Write | None]]:
    """Return the names in JSON and in Python of what is in the JSON form, and how it is encoded."""
    shown = [one for one in fields_of(kind) if HIDDEN not in one.marks]
    return [(one.json_name, one.name, _encoder(one.hint)) for one in shown] + [
        (name, name, _encoder(hint)) for name, hint in _properties(kind)
    ]


def _properties(kind: type[Fact]) -> list[tuple[str, Any]]:
    found = [(name, getattr(kind, name).fget) for name in kind.json_properties]
    return [(name, get_type_hints(getter)["return"]) for name, getter in found]


def _encoder(hint: Any) -> Write | None:
    return writer_of(hint, _leaf, lambda _: _encode_fact, _array)


def _array(encode: Write | None) -> Write:
    def encode_items(items: Sequence[Any], limits: _Limits) -> list[Any]:
        # A tree may be deeper than JSON parsers, and Python's stack, allow.
        if items and limits.levels == 0:
            return [{"$more": len(items)}]
        return [item if encode is None else encode(item, limits) for item in items]

    return encode_items


def _leaf(hint: Any) -> Write | None:
    if (origin := get_origin(hint)) is Mapping:
        return _encode_arguments
    if origin is Literal or hint in {bool, int}:
        return None
    return _LEAVES.get(hint) or (_encode_enum if issubclass(hint, StrEnum) else _encode_any)


# Values


def money(dollars: Decimal) -> str:
    """Return dollars as text, without zeros at the end."""
    shown = f"{dollars:f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _encode_any(value: Any, limits: _Limits) -> Any:
    return as_data(value, limits.characters)


def _encode_arguments(given: Mapping[str, Any], limits: _Limits) -> dict[str, Any]:
    return {encodable(name): as_data(value, limits.characters) for name, value in given.items()}


def _encode_text(given: str, limits: _Limits) -> str:
    limit = limits.characters
    return encodable(given if limit is None else truncate(given, limit))


def _encode_float(value: float, limits: _Limits) -> float | None:
    # Times are finite; a timeout that is not is the same as none.
    return value if math.isfinite(value) else None


def _encode_enum(value: StrEnum, limits: _Limits) -> str:
    return value.value


def _encode_money(value: Decimal, limits: _Limits) -> str:
    return money(value)


def _encode_time(value: datetime, limits: _Limits) -> float:
    return value.timestamp()


_LEAVES: Final[dict[Any, Write]] = {
    Any: _encode_any,
    str: _encode_text,
    float: _encode_float,
    Decimal: _encode_money,
    datetime: _encode_time,
}


# The schema


_TIME: Final[JsonSchema] = {"anyOf": [{"type": "number"}, {"type": "null"}]}


def json_schema(title: str, kinds: Sequence[type[Fact]]) -> JsonSchema:
    """Return the JSON Schema of what ``json_form`` returns for objects of these classes."""
    _, made = msgspec.json.schema_components(kinds)
    facts = {kind.__name__: kind for kind in _subclasses(Fact)}
    defs = {
        name: _shown(schema, facts[name]) if name in facts else _summarised(schema)
        for name, schema in made.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "oneOf": [_tagged(kind) for kind in kinds],
        "$defs": _without_titles(dict(sorted(defs.items()))),
    }


def _shown(schema: JsonSchema, kind: type[Fact]) -> JsonSchema:
    """Return what msgspec says about *kind*, for the JSON form, which has no optional fields."""
    known: dict[str, Any] = schema["properties"]
    properties = {"type": known["type"]} if tag_of(kind) else {}
    for one in fields_of(kind):
        if HIDDEN not in one.marks:
            is_time = one.hint is datetime or datetime in get_args(one.hint)
            properties[one.json_name] = _TIME if is_time else known[one.json_name]
    for name, hint in _properties(kind):
        properties[name] = msgspec.json.schema(hint)
    return {
        "description": _summary(kind.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": [*properties],
    }


def _summarised(schema: JsonSchema) -> JsonSchema:
    described = "description" in schema
    return {**schema, "description": _summary(schema["description"])} if described else schema


def _summary(docstring: str) -> str:
    return docstring.partition("\n")[0]


def _tagged(kind: type[Fact]) -> JsonSchema:
    properties = {"schema": {"const": SCHEMA}, "type": {"const": kind.__name__}}
    return {
        "properties": properties,
        "required": [*properties],
        "$ref": f"#/$defs/{kind.__name__}",
    }


def _without_titles(schema: Any) -> Any:
    """Return *schema* without the names of classes and the defaults of their constructors.

    The bounds of ``Finite`` are left out, too: every number of JSON is finite.
    """
    if isinstance(schema, list):
        return [_without_titles(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_titles(one)
        for name, one in cast("JsonSchema", schema).items()
        if (name not in {"title", "default"} and one not in _BOUNDS) or isinstance(one, dict)
    }


def _subclasses(kind: type[Fact]) -> list[type[Fact]]:
    return [found for one in kind.__subclasses__() for found in (one, *_subclasses(one))]


def kinds_of(base: type[Fact]) -> list[type[Fact]]:
    """Return the classes below *base* that have no subclasses, by name."""
    leaves = [kind for kind in _subclasses(base) if not kind.__subclasses__()]
    return sorted(leaves, key=lambda kind: kind.__name__)
