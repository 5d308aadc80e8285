"""Schemas as people write them: names with a type or a JSON schema each, or a whole JSON schema."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, cast

from treefold.core.errors import DefinitionError
from treefold.core.json_schema import read_parameters
from treefold.core.parameter import JsonSchema, Parameter
from treefold.core.parameters import Parameters

_PLAIN: Final = (str, int, float, bool, type(None))
_NO_TYPES: Final = (*_PLAIN, list, tuple, set)


def read_shorthand(owner: str, written: JsonSchema) -> Parameters:
    """Return the parameters that *written* stands for, and the JSON schema for models.

    A parameter is required unless its own schema has a "default", or says ``"required": False`` or
    ``"optional": True``; the two last are not JSON schema, and are taken out.
    """
    if _is_whole(written):
        return Parameters.of_schema(owner, written)
    types = {name: kind for name, kind in written.items() if not isinstance(kind, Mapping)}
    told = Parameters(owner, [Parameter(name, kind) for name, kind in types.items()]).json_schema
    properties: JsonSchema = {}
    required: list[str] = []
    for name, kind in written.items():
        if name in types:
            properties[name], needed = told["properties"][name], True
        else:
            properties[name], needed = _without_flags(owner, name, kind)
        if needed:
            required.append(name)
    schema: JsonSchema = {"type": "object", "properties": properties, "required": required}
    if "$defs" in told:
        schema["$defs"] = told["$defs"]
    items = [
        Parameter(p.name, _as_plain_data(types[p.name])) if p.name in types else p
        for p in read_parameters(owner, schema)
    ]
    return Parameters(owner, items, json_schema=schema)


def check_shorthand(owner: str, written: object) -> JsonSchema:
    """Return *written* if it can be a schema; whether pydantic knows its types is seen later.

    Raises:
        DefinitionError: it cannot.
    """
    if not isinstance(written, dict):
        raise DefinitionError(
            f"the schema of tool {owner!r} is a dict, {{'city': str}} or a JSON schema, not"
            f" {written!r}"
        )
    schema = cast("JsonSchema", written)
    if _is_whole(schema):
        read_parameters(owner, schema)
        return schema
    for name, kind in schema.items():
        if not isinstance(name, str):
            raise DefinitionError(f"a parameter of tool {owner!r} is called {name!r}: give a text")
        if isinstance(kind, Mapping):
            _without_flags(owner, name, cast("JsonSchema", kind))
        elif isinstance(kind, _NO_TYPES):
            raise DefinitionError(
                f"parameter {name!r} of tool {owner!r} is {kind!r}, which is no type: write"
                f" {{{name!r}: str}}, or {{{name!r}: {{'type': 'string'}}}}; and a JSON schema for"
                " all parameters has 'type': 'object' and 'properties'"
            )
    return schema


def _is_whole(written: JsonSchema) -> bool:
    """Whether *written* is a JSON schema, and not parameters called "type" and "properties"."""
    return written.get("type") == "object" and isinstance(written.get("properties"), Mapping)


def _without_flags(owner: str, name: str, written: Mapping[str, Any]) -> tuple[JsonSchema, bool]:
    """Return the schema of one parameter, and whether it has to be given."""
    schema = dict(written)
    optional = bool(schema.pop("optional", False)) or "default" in schema
    if isinstance(schema.get("required"), list):  # that says what an object must have
        return schema, not optional
    match schema.pop("required", None):
        case None:
            return schema, not optional
        case bool(required):
            return schema, required
        case other:
            raise DefinitionError(
                f"'required' of parameter {name!r} of tool {owner!r} is True or False, not"
                f" {other!r}"
            )


def _as_plain_data(kind: Any) -> Any:
    """Return *kind*, checked as such; values of it that are no JSON stay as they were given.

    So the handler is given what the model wrote, a dict for a pydantic model, whoever calls it.
    """
    from pydantic import WrapValidator  # noqa: PLC0415 - takes a while to load

    def check(value: Any, validate: Callable[[Any], Any]) -> Any:
        found = validate(value)
        return found if _is_plain(found) else value

    return Annotated[kind, WrapValidator(check)]


def _is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_plain, cast("list[Any]", value)))
    if type(value) is dict:
        return all(map(_is_plain, cast("dict[Any, Any]", value).values()))
    return type(value) in _PLAIN
