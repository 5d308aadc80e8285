"""What the caller of a function gives: an ordered list of named parameters.

Knows names, annotations and defaults; binding arguments to names needs no more. Checking and
describing types is ``core.schema``'s work, loaded when somebody first asks for it: it needs
pydantic, and a program that only calls its own tools does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Protocol, Union, cast

from ramify.core.errors import DefinitionError
from ramify.core.parameter import MISSING, JsonSchema, Parameter


class Schema(Protocol):
    """The types of parameters: described, and checked."""

    @property
    def json_schema(self) -> JsonSchema: ...

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]: ...


class Parameters:
    """The parameters of one function, in order."""

    def __init__(
        self,
        owner: str,
        items: Sequence[Parameter],
        *,
        unseen: Iterable[str] = (),
        takes_more: bool = False,
        rest: str | None = None,
        docstring: str | None = None,
        json_schema: JsonSchema | None = None,
    ) -> None:
        self.owner = owner
        self.docstring = docstring
        self.items = tuple(items)
        self.takes_more = takes_more  # it has **kwargs
        self.rest = rest  # the name of its *args
        self.names = tuple(p.name for p in self.items)
        self._known = frozenset(self.names).union(unseen)  # some may be given but are not described
        self._given_schema = json_schema

    @classmethod
    def from_json_schema(cls, owner: str, schema: JsonSchema) -> "Parameters":
        """Read the properties of an object schema; the schema itself is kept word for word."""
        properties = schema.get("properties")
        if schema.get("type", "object") != "object" or not isinstance(properties, Mapping | None):
            raise DefinitionError(
                f"the schema of {owner!r} must be an object schema with 'properties', not {schema}"
            )
        required = set(schema.get("required", ()))
        items = [
            Parameter(name, _annotation(described), MISSING if name in required else None)
            for name, described in cast("Mapping[str, JsonSchema]", properties or {}).items()
        ]
        takes_more = schema.get("additionalProperties", False) is not False
        return cls(owner, items, takes_more=takes_more, json_schema=schema)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Give each argument its name, and leave out those that the function does not take."""
        if self.takes_more or self._known.issuperset(kwargs):
            values = dict(kwargs)
        else:
            values = {name: value for name, value in kwargs.items() if name in self._known}
        if args:
            free = [name for name in self.names if name not in values]
            values.update(zip(free, args, strict=False))
            if self.rest is not None:
                values[self.rest] = tuple(args[len(free) :])
        return values

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args* as their declared types.

        Raises:
            InvalidArgumentsError: one is missing, unknown or of the wrong type.
        """
        return self._schema.validate(args)

    @property
    def json_schema(self) -> JsonSchema:
        """The parameters as a JSON schema."""
        return self._given_schema if self._given_schema is not None else self._schema.json_schema

    @cached_property
    def _schema(self) -> Schema:
        from ramify.core.schema import PydanticSchema  # noqa: PLC0415 - loads pydantic

        return PydanticSchema(self.owner, self.items, self.docstring, takes_more=self.takes_more)


_JSON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "object": dict[str, Any],
}


def _annotation(schema: JsonSchema) -> Any:
    """Return the Python type nearest to *schema*; what has none stays unchecked."""
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if "const" in schema:
        return Literal[schema["const"]]
    if "anyOf" in schema:
        return _union([_annotation(choice) for choice in schema["anyOf"]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union([_annotation(schema | {"type": one}) for one in cast("list[str]", kind)])
    if kind == "array":
        return list[_annotation(schema.get("items", {}))]
    return _JSON_TYPES.get(cast("str", kind), Any)


def _union(choices: list[Any]) -> Any:
    return Any if Any in choices or not choices else Union[tuple(choices)]  # noqa: UP007 - a list
