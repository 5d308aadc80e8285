"""The output schema of a function, and structured content that conforms to it.

The protocol requires an object. A result of another type is wrapped as ``{"result": ...}``, and the
schema is marked as FastMCP does it, so that clients which know the mark unwrap the result.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticSerializationError

from treefold.core.errors import InvalidValueError
from treefold.core.function import Function
from treefold.core.parameter import JsonSchema
from treefold.core.plain import explained
from treefold.models.json_text import join_surrogates

WRAPPED: Final = "result"
WRAPS: Final = "x-fastmcp-wrap-result"

_NO_SCHEMA: Final = (PydanticUserError, PydanticInvalidForJsonSchema, NameError, TypeError)


class OutputSchema:
    """The output schema of one function, from its return annotation."""

    def __init__(self, name: str, adapter: TypeAdapter[Any], schema: JsonSchema) -> None:
        self._name = name
        self._adapter = adapter
        self._wraps = not _is_object(schema)
        self.schema = _wrapping(schema) if self._wraps else {"type": "object"} | schema

    @classmethod
    def of(cls, function: Function) -> "OutputSchema | None":
        """Return the schema of *function*; None if it declares no type, or one without a schema."""
        kind: Any = function.output_type
        if kind is Any or kind is None or kind is type(None) or isinstance(kind, str):
            return None
        if function.streams:
            kind = cast("Any", list).__class_getitem__(kind)
        try:
            adapter = TypeAdapter[Any](kind)
            schema = adapter.json_schema(mode="serialization")
        except _NO_SCHEMA:
            return None
        return cls(function.name, adapter, schema) if schema else None

    def structured(self, value: Any) -> dict[str, Any]:
        """Return *value* as an object that conforms to the schema.

        Raises:
            InvalidValueError: it does not conform.
        """
        try:
            checked = self._adapter.validate_python(value)
            plain = self._adapter.dump_python(checked, mode="json", by_alias=True)
        except ValidationError as error:
            raise self._unfit(explained(error, "the result")) from None
        except PydanticSerializationError as error:
            raise self._unfit(str(error)) from None
        found = {WRAPPED: plain} if self._wraps else plain
        text = json.dumps(found, ensure_ascii=False)
        if join_surrogates(text) != text:  # a lone surrogate, which cannot be sent
            found = json.loads(join_surrogates(text))
        for error in self._validator.iter_errors(found):
            raise self._unfit(error.message)
        return found

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow, and only for results

        return Draft202012Validator(self.schema)

    def _unfit(self, why: str) -> InvalidValueError:
        return InvalidValueError(
            f"{self._name} returned a value that does not fit its return annotation: {why}"
        )


def wraps_result(schema: Mapping[str, Any] | None) -> bool:
    """Whether the output schema of a tool says that its result is wrapped."""
    if schema is None:
        return False
    properties = schema.get("properties")
    only = isinstance(properties, Mapping) and list(cast("Any", properties)) == [WRAPPED]
    return schema.get(WRAPS) is True or (schema.get("type") == "object" and only)


def _is_object(schema: JsonSchema) -> bool:
    target = schema.get("$defs", {}).get(schema.get("$ref", "").removeprefix("#/$defs/"), schema)
    return target.get("type") == "object"


def _wrapping(schema: JsonSchema) -> JsonSchema:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    types = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {
        "type": "object",
        "properties": {WRAPPED: inner},
        "required": [WRAPPED],
        WRAPS: True,
        **types,
    }
