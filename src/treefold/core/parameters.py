"""``Parameters``: the ordered parameters that the caller of a function fills in.

Binds arguments to names, which needs names, annotations and defaults only. ``core.schema`` checks
and describes types. It is imported on first use, because it imports pydantic, which a program that
only calls its own tools does not need.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, Self

from treefold.core.errors import InvalidArgumentsError
from treefold.core.json_schema import allows_more, read_parameters
from treefold.core.parameter import JsonSchema, Parameter

REST: Final = "*"  # the key of the values for *args; no keyword argument can have that name


class Schema(Protocol):
    """Describes and checks the types of parameters."""

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
        positional: Sequence[str] | None = None,
        unseen: Iterable[str] = (),
        takes_more: bool = False,
        takes_rest: bool = False,
        docstring: str | None = None,
        json_schema: JsonSchema | None = None,
    ) -> None:
        self.owner = owner
        self.items = tuple(items)
        # The names of those that may be given without a name.
        self.positional = [p.name for p in items] if positional is None else positional
        self._unseen = frozenset(unseen)  # not in the schema; only Python code may pass them
        self._takes_more = takes_more  # the function has **kwargs
        self._takes_rest = takes_rest  # the function has *args
        self._known = self._unseen.union(p.name for p in items)
        self._docstring = docstring
        self._given_schema = json_schema

    @classmethod
    def of_schema(cls, owner: str, schema: JsonSchema) -> Self:
        """Return the parameters of an object schema; models see the schema unchanged."""
        items = read_parameters(owner, schema)
        return cls(owner, items, takes_more=allows_more(schema), json_schema=schema)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, without those that the function does not take."""
        if self._takes_more or self._known.issuperset(kwargs):
            values = dict(kwargs)
        else:
            values = {name: value for name, value in kwargs.items() if name in self._known}
        if not args:
            return values
        for name, value in zip(self.positional, args, strict=False):
            if name in values:
                raise TypeError(f"{self.owner}() got multiple values for argument {name!r}")
            values[name] = value
        if self._takes_rest:
            values[REST] = tuple(args[len(self.positional) :])
        return values

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args* converted to their declared types.

        Raises:
            InvalidArgumentsError: one is missing, unknown or of the wrong type.
        """
        if self._takes_more and (forged := self._unseen.intersection(args)):
            names = ", ".join(map(repr, sorted(forged)))
            raise InvalidArgumentsError(f"{self.owner}: {names} is not for the caller to give")
        return self._schema.validate(args)

    @property
    def json_schema(self) -> JsonSchema:
        """The parameters as a JSON schema."""
        return self._given_schema if self._given_schema is not None else self._schema.json_schema

    @cached_property
    def _schema(self) -> Schema:
        from treefold.core.schema import PydanticSchema  # noqa: PLC0415 - loads pydantic

        return PydanticSchema(self.owner, self.items, self._docstring, takes_more=self._takes_more)
