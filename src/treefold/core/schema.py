"""``PydanticSchema``: the JSON schema of parameters, and validation of arguments.

The parameters become one TypedDict, because its keys may have any name (``schema``, ``copy``,
``_x``), and because validation returns a plain dict with values of the declared types.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, NotRequired, Required, cast, get_args, get_origin

import docstring_parser
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic.warnings import ArbitraryTypeWarning
from pydantic_core import (
    ErrorDetails,
    PydanticCustomError,
    PydanticSerializationError,
    to_jsonable_python,
)
from typing_extensions import TypedDict

from treefold.core.errors import DefinitionError, InvalidArgumentsError
from treefold.core.parameter import JsonSchema, Parameter
from treefold.core.suggestions import did_you_mean
from treefold.core.truncation import truncated_repr

_LONGEST: Final = 80  # characters of an invalid value in a message
_NO_TYPE: Final = (PydanticUserError, ArbitraryTypeWarning, NameError, TypeError, AttributeError)


class PydanticSchema:
    """The parameters of one function as one pydantic type."""

    def __init__(
        self, owner: str, items: Sequence[Parameter], docstring: str | None, *, takes_more: bool
    ) -> None:
        self._owner = owner
        self._items = {p.name: p for p in items}
        texts = _parameter_texts(docstring)
        try:
            fields: dict[str, Any] = {}
            for p in items:
                hint = _described(p, p.description or texts.get(p.name))
                if not p.takes_bool:
                    hint = Annotated[hint, BeforeValidator(_refuse_bool)]
                fields[p.name] = Required[hint] if p.required else NotRequired[hint]
            kind = cast("Any", TypedDict)(self._owner, fields)
            kind.__pydantic_config__ = ConfigDict(
                extra="allow" if takes_more else "forbid", arbitrary_types_allowed=True
            )
            with warnings.catch_warnings():
                # Pydantic only warns about an annotation that is not a type.
                warnings.simplefilter("error", ArbitraryTypeWarning)
                self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(kind)
            self._validate = self._adapter.validator.validate_python
        except _NO_TYPE as error:
            names = ", ".join(f"{p.name}: {p.annotation}" for p in items)
            raise DefinitionError(
                f"the parameters of {self._owner!r} ({names}) cannot be described, because a type"
                f" is unknown or not defined at module level: {error}"
            ) from None

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return *args* converted to their declared types, or raise InvalidArgumentsError."""
        try:
            return self._validate(args)
        except ValidationError as error:
            faults = "; ".join(self._explain(fault) for fault in error.errors(include_url=False))
            raise InvalidArgumentsError(f"{self._owner}: {faults}") from None

    @property
    def json_schema(self) -> JsonSchema:
        """The parameters as a JSON schema, without the titles that pydantic generates."""
        return self._json_schema

    @cached_property
    def _json_schema(self) -> JsonSchema:
        try:
            schema = self._adapter.json_schema(schema_generator=_Untitled)
        except PydanticInvalidForJsonSchema as error:
            raise DefinitionError(
                f"{self._owner!r} takes something that JSON cannot express ({error.message});"
                " annotate it with a type that JSON can, or list its arguments by hand"
            ) from None
        for key in ("title", "description"):
            schema.pop(key, None)
        for name, parameter in self._items.items():
            shown = None if parameter.required else _jsonable_or_none(parameter.default)
            # A field with an alias is not in the properties under its own name.
            if shown is not None and name in schema["properties"]:
                schema["properties"][name]["default"] = shown
        return schema

    def _explain(self, fault: ErrorDetails) -> str:
        place, *inner = fault["loc"] or ("",)
        where = ".".join([f"argument {place!r}", *map(str, inner)])
        match fault["type"]:
            case "missing" if not inner:
                hint = "; annotate it with RunContext to be given the context"
                return f"missing argument {place!r}{hint if place == 'ctx' else ''}"
            case "extra_forbidden" if not inner:
                hint = did_you_mean(place, self._items, then=" ")
                return (
                    f"unknown argument {place!r}; {hint}it takes {', '.join(self._items) or 'none'}"
                )
            case _:
                return f"{where}: {fault['msg']} (got {truncated_repr(fault['input'], _LONGEST)})"


class _Untitled(GenerateJsonSchema):
    """Generates no titles for fields: they would only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _parameter_texts(docstring: str | None) -> dict[str, str]:
    """Return the text about each parameter in *docstring*, in any of the usual styles."""
    params = docstring_parser.parse(docstring or "").params
    return {p.arg_name: " ".join(p.description.split()) for p in params if p.description}


def _described(parameter: Parameter, description: str | None) -> Any:
    """Return the annotation with *description*, unless it has a description of its own."""
    annotation = parameter.annotation
    if isinstance(parameter.default, FieldInfo):
        raise TypeError(f"write '{parameter.name}: Annotated[..., Field(...)]', not '= Field(...)'")
    if get_origin(annotation) is Annotated:
        for note in get_args(annotation)[1:]:
            if isinstance(note, FieldInfo) and note.description:
                return annotation
            if isinstance(note, str):
                description = note
    return Annotated[annotation, Field(description=description)]


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("no_number", "Input should be a number, not true or false")
    return value


def _jsonable_or_none(value: Any) -> Any:
    try:
        return to_jsonable_python(value, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError):
        return None
