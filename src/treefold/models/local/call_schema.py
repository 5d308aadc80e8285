"""The schema of one call of a function, written as JSON."""

from collections.abc import Iterable
from typing import Any

from treefold.core.function import Function
from treefold.core.parameter import JsonSchema


def call_schema(functions: Iterable[Function]) -> JsonSchema | None:
    """Return the schema of a call of any of *functions*; None if their schemas cannot be joined.

    Example:
        >>> from treefold.toolbox import return_result
        >>> call_schema([return_result])["anyOf"][0]["properties"]["name"]
        {'const': 'return_result'}
    """
    types: dict[str, Any] = {}
    calls: list[JsonSchema] = []
    for function in functions:
        schema = dict(function.input_schema)
        # References are relative to the whole schema.
        for name, definition in schema.pop("$defs", {}).items():
            if types.setdefault(name, definition) != definition:
                return None
        properties = {"name": {"const": function.name}, "arguments": schema}
        calls.append({
            "type": "object",
            "properties": properties,
            "required": ["name", "arguments"],
        })
    joined: JsonSchema = {"anyOf": calls}
    return joined | {"$defs": types} if types else joined
