"""Results of a declared type: how an agent returns one, and how it is checked."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from treefold.core.errors import DefinitionError, InvalidArgumentsError
from treefold.core.function import Function, RunContext
from treefold.core.parameter import JsonSchema, Parameter
from treefold.core.parameters import Parameters
from treefold.core.plain import explained

_NAME: Final = "return_result"
_WRAPPED: Final = "result"  # the only argument, if the type is not an object
_WRONG: Final = "the answer is wrong"
_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL | re.IGNORECASE)

_DESCRIPTION: Final = """\
Return the result of your task and end. Call it once, when everything is done; what you say in \
text does not count as the result."""


class ResultType:
    """The declared type of an agent's result."""

    def __init__(self, returns: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 - slow
        from pydantic.errors import PydanticInvalidForJsonSchema  # noqa: PLC0415

        self.returns = returns
        try:
            self._adapter = TypeAdapter[Any](returns)
            schema = self._adapter.json_schema()
        except (PydanticUserError, PydanticInvalidForJsonSchema, TypeError, NameError) as error:
            raise DefinitionError(
                f"returns must be a type that JSON can express, got {returns!r}: {error}"
            ) from None
        self.is_object = schema.get("type") == "object" and "properties" in schema
        self.schema: JsonSchema = schema
        for key in ("title", "description"):
            schema.pop(key, None)

    @property
    def arguments_schema(self) -> JsonSchema:
        """The schema of the arguments of return_result."""
        if self.is_object:
            return self.schema
        inner = {key: value for key, value in self.schema.items() if key != "$defs"}
        wrapped: JsonSchema = {
            "type": "object",
            "properties": {_WRAPPED: inner},
            "required": [_WRAPPED],
        }
        return wrapped | {key: self.schema[key] for key in ("$defs",) if key in self.schema}

    def from_arguments(self, args: Mapping[str, Any]) -> Any:
        """Return the result from the arguments of a call of return_result.

        Raises:
            InvalidArgumentsError: it is not of the type.
        """
        if not self.is_object:
            if unknown := [name for name in args if name != _WRAPPED]:
                raise InvalidArgumentsError(f"{_NAME}: {_unknown(unknown, [_WRAPPED])}")
            if _WRAPPED not in args:
                raise InvalidArgumentsError(f"{_NAME}: missing argument {_WRAPPED!r}")
        return self._checked(dict(args) if self.is_object else args[_WRAPPED], _NAME)

    def from_text(self, text: str) -> Any:
        """Return the result from *text*, which is JSON or contains it in one code fence.

        Raises:
            InvalidArgumentsError: it is not JSON, or not of the type.
        """
        fenced = _FENCED.findall(text)
        candidate = fenced[0] if len(fenced) == 1 else text
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentsError(f"the answer is not JSON: {error}") from None
        try:
            return self._checked(value, _WRONG)
        except InvalidArgumentsError:
            match value:
                case {"result": inner, **rest} if not rest and not self.is_object:
                    # The model wrote the arguments of return_result.
                    return self._checked(inner, _WRONG)
                case _:
                    raise

    def _checked(self, value: Any, what: str) -> Any:
        from pydantic import ValidationError  # noqa: PLC0415 - loaded by the constructor

        if faults := list(_misspelt(value, self.schema, self.schema.get("$defs", {}))):
            raise InvalidArgumentsError(f"{what}: {'; '.join(faults)}")
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidArgumentsError(f"{what}: {explained(error, 'the result')}") from None


def _misspelt(value: Any, schema: Any, types: Mapping[str, Any]) -> Iterator[str]:
    """Yield messages about fields that the type does not have, at any depth.

    Pydantic ignores such fields.
    """
    schema = types.get(schema.get("$ref", "").removeprefix("#/$defs/"), schema)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in cast("list[Any]", value):
            yield from _misspelt(item, schema["items"], types)
    known = schema.get("properties")
    if not isinstance(value, dict) or known is None:
        return
    fields = cast("dict[str, Any]", value)
    unknown = [name for name in fields if name not in known]
    if unknown and not schema.get("additionalProperties", False):
        yield _unknown(unknown, known)
    for name, inner in known.items():
        yield from _misspelt(fields.get(name), inner, types)


def _unknown(unknown: Iterable[str], known: Iterable[str]) -> str:
    return f"unknown argument {', '.join(map(repr, unknown))}; it takes {', '.join(known)}"


class ReturnResult(Function):
    """The function that an agent calls to return its result; the call ends the agent.

    With *or_answer*, a model that cannot call functions answers with the result as JSON.

    Example:
        >>> from treefold.toolbox import return_result
        >>> return_result.input_schema["required"]
        ['result']
    """

    def __init__(self, returns: Any = str, *, or_answer: bool = False) -> None:
        self.type = ResultType(returns)
        self.result_path = () if self.type.is_object else (_WRAPPED,)
        if or_answer:
            self.answer_schema = self.type.schema
        self._parameters = _ResultParameters(self.type)
        super().__init__(_NAME, _DESCRIPTION, repeatable=True)

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    @property
    def output_type(self) -> Any:
        return self.type.returns

    async def run_call(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        return args[_WRAPPED]


class _ResultParameters(Parameters):
    """Validates the arguments as one value, so that validators of the whole type run, too."""

    def __init__(self, type: ResultType) -> None:
        super().__init__(_NAME, [Parameter(_WRAPPED, type.returns)])
        self._type = type

    @property
    def json_schema(self) -> JsonSchema:
        return self._type.arguments_schema

    def validate(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return {_WRAPPED: self._type.from_arguments(args)}
