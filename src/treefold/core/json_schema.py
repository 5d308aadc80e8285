"""Read the parameters of a function from a JSON schema that the user supplied.

Models see the schema unchanged. Arguments are checked as far as Python types can express it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, cast

from treefold.core.errors import DefinitionError
from treefold.core.parameter import MISSING, JsonSchema, Parameter

_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "object": dict[str, Any],
}
# Keywords by which a schema may describe arguments outside its own "properties".
_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties")
# Keywords whose value has a schema for each name.
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions"})


def allows_more(schema: JsonSchema) -> bool:
    """Whether *schema* accepts arguments that are not among its own properties."""
    return schema.get("additionalProperties", False) is not False or any(
        keyword in schema for keyword in _ELSEWHERE
    )


def read_parameters(owner: str, schema: JsonSchema) -> list[Parameter]:
    """Return the parameters that an object schema describes."""
    properties: Any = schema.get("properties") or {}
    required: list[str] = schema.get("required") or []
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise DefinitionError(
            f"the schema of {owner!r} must be an object schema with 'properties', not {schema!r}"
        )
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise DefinitionError(f"'required' in the schema of {owner!r} is a list, not {required!r}")
    described: dict[str, Any] = dict.fromkeys(required, True) | dict(
        cast("Mapping[str, Any]", properties)
    )
    return [
        Parameter(name, _annotation(inner), MISSING if name in required else None)
        for name, inner in described.items()
    ]


def without_defaults(schema: Any, *, by_name: bool = False) -> Any:
    """Return *schema* without the defaults; *by_name* if it is a mapping from names to schemas.

    A default is a value of one process: a folder, or a set, whose order is random.
    """
    if isinstance(schema, Mapping):
        items = cast("Mapping[str, Any]", schema).items()
        return {
            key: without_defaults(inner, by_name=not by_name and key in _BY_NAME)
            for key, inner in items
            if by_name or key != "default"
        }
    if isinstance(schema, list):
        return [without_defaults(inner) for inner in cast("list[Any]", schema)]
    return schema


def _annotation(schema: Any) -> Any:
    """Return the Python type nearest to *schema*; ``Any``, which is not checked, if none is."""
    match schema:
        case {"enum": [_, *_] as choices}:
            return Literal[tuple(cast("list[Any]", choices))]
        case {"const": only}:
            return Literal[only]
        case {"anyOf": [*choices]}:
            return _union([_annotation(choice) for choice in choices])
        case {"type": [*kinds]}:
            rest = cast("JsonSchema", schema)
            return _union([_annotation(rest | {"type": kind}) for kind in kinds])
        case {"type": "array", "items": {**items}}:
            return list[_annotation(items)]
        case {"type": "array"}:
            return list[Any]
        case {"type": str(kind)}:
            return _TYPES.get(kind, Any)
        case _:
            return Any


def _union(choices: Sequence[Any]) -> Any:
    return Any if Any in choices or not choices else Union[tuple(choices)]  # noqa: UP007 - a list
