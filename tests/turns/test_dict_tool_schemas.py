"""The schema of a dict tool: as models get it, and as arguments are validated by it."""

from datetime import date
from threading import Event
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from treefold import Runtime, Tool, tool
from treefold.core.errors import DefinitionError, InvalidArgumentsError


class Point(BaseModel):
    x: int
    y: int = 0


class Line(BaseModel):
    ends: list[Point]


def made(schema: dict[str, Any]) -> Tool[Any, Any]:
    @tool("show", "Show.", schema)
    async def show(args: dict[str, Any]) -> dict[str, Any]:
        return args

    return show


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": True}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (date, {"type": "string", "format": "date"}),
    ],
)
def test_a_type_is_described_and_its_parameter_required(kind: Any, schema: dict[str, Any]):
    assert made({"p": kind}).input_schema == {
        "type": "object",
        "properties": {"p": schema},
        "required": ["p"],
    }


def test_parameters_keep_their_order():
    schema = made({"z": str, "y": {"type": "string"}, "x": str}).input_schema

    assert list(schema["properties"]) == ["z", "y", "x"]
    assert schema["required"] == ["z", "y", "x"]


def test_models_are_described_where_references_find_them():
    schema = made({"line": Line, "at": Point}).input_schema

    assert schema["properties"] == {
        "line": {"$ref": "#/$defs/Line"},
        "at": {"$ref": "#/$defs/Point"},
    }
    assert set(schema["$defs"]) == {"Line", "Point"}


@pytest.mark.parametrize(
    ("written", "sent", "required"),
    [
        ({"type": "integer"}, {"type": "integer"}, True),
        ({"type": "integer", "default": 10}, {"type": "integer", "default": 10}, False),
        ({"type": "integer", "default": None}, {"type": "integer", "default": None}, False),
        ({"type": "integer", "required": False}, {"type": "integer"}, False),
        ({"type": "integer", "optional": True}, {"type": "integer"}, False),
        ({"type": "integer", "optional": False}, {"type": "integer"}, True),
        ({"type": "integer", "required": True}, {"type": "integer"}, True),
        (
            {"type": "integer", "required": True, "default": 1},
            {"type": "integer", "default": 1},
            True,
        ),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {}}, "required": ["a"]},
            True,
        ),
    ],
)
def test_flags_say_what_may_be_left_out_and_are_not_sent(
    written: dict[str, Any], sent: dict[str, Any], *, required: bool
):
    before = dict(written)

    assert made({"p": written}).input_schema == {
        "type": "object",
        "properties": {"p": sent},
        "required": ["p"] if required else [],
    }
    assert written == before


def test_a_whole_json_schema_is_passed_on_unchanged():
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "optional": True}},
        "additionalProperties": True,
    }
    assert made(schema).input_schema == schema


def test_parameters_called_type_and_properties_are_parameters():
    assert made({"type": str, "properties": dict}).input_schema["required"] == [
        "type",
        "properties",
    ]
    assert made({"type": {"type": "string"}, "properties": {"type": "array"}}).input_schema == {
        "type": "object",
        "properties": {"type": {"type": "string"}, "properties": {"type": "array"}},
        "required": ["type", "properties"],
    }


def test_no_parameters_are_a_schema_too():
    assert made({}).input_schema == {"type": "object", "properties": {}, "required": []}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (object(), "cannot be described"),
        (Event(), "cannot be described.* is not a Python type"),
        (Event, "JSON cannot express"),
    ],
)
def test_a_type_that_pydantic_cannot_describe_is_refused_when_it_is_needed(kind: Any, message: str):
    with pytest.raises(DefinitionError, match=message):
        _ = made({"p": kind}).input_schema


async def test_values_are_checked_by_their_type_and_given_as_they_came():
    show = made({"at": Point, "on": date, "tags": list[int]})
    given = {"at": {"x": "1"}, "on": "2024-02-29", "tags": ["1", 2]}

    async with Runtime() as runtime:
        assert await runtime.invoke(show, given) == given | {"tags": [1, 2]}
        with pytest.raises(InvalidArgumentsError, match="argument 'at'.x: .*got 'left'"):
            await runtime.invoke(show, given | {"at": {"x": "left"}})
        with pytest.raises(InvalidArgumentsError, match="argument 'on'"):
            await runtime.invoke(show, given | {"on": "2023-02-29"})


async def test_a_whole_schema_is_checked_as_far_as_it_has_python_types():
    show = made({
        "type": "object",
        "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer"}},
        "required": ["unit"],
    })
    async with Runtime() as runtime:
        assert await runtime.invoke(show, {"unit": "C"}) == {"unit": "C"}
        with pytest.raises(InvalidArgumentsError, match="argument 'unit'"):
            await runtime.invoke(show, {"unit": "K"})
        with pytest.raises(InvalidArgumentsError, match="unknown argument 'day'; did you mean"):
            await runtime.invoke(show, {"unit": "C", "day": 1})


async def test_further_arguments_are_taken_where_the_schema_says_so():
    show = made({"type": "object", "properties": {}, "additionalProperties": True})

    async with Runtime() as runtime:
        assert await runtime.invoke(show, {"any": "thing"}) == {"any": "thing"}
