"""What a function takes, as a JSON schema and as checked arguments."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import BaseModel, Field

from treefold import (
    AgentFunction,
    CallGraphError,
    CodeFunction,
    ContextPool,
    ContextQueue,
    FunctionArg,
    RunContext,
    Runtime,
    Turn,
    tool,
)
from treefold.core.errors import DefinitionError, InvalidArgumentsError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


@dataclass
class Point:
    x: int
    y: int = 0


def properties(fn: Callable[..., Any]) -> dict[str, Any]:
    return tool(fn).input_schema["properties"]


def test_the_schema_comes_from_signature_annotations_and_docstring():
    @tool
    async def book(
        title: str,
        copies: int = 1,
        format: Literal["paper", "ebook"] = "paper",
        colour: Colour | None = None,
        notes: list[str] | None = None,
        rating: float | str = 0.5,
    ) -> str:
        """Order a book.

        Args:
            title: What it is called,
                in full.
            copies: How many.
        """
        return title

    assert book.description.startswith("Order a book.")
    assert book.input_schema == {
        "$defs": {"Colour": {"enum": ["red", "blue"], "title": "Colour", "type": "string"}},
        "type": "object",
        "properties": {
            "title": {"description": "What it is called, in full.", "type": "string"},
            "copies": {"description": "How many.", "type": "integer", "default": 1},
            "format": {"enum": ["paper", "ebook"], "type": "string", "default": "paper"},
            "colour": {"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]},
            "notes": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}]},
            "rating": {"anyOf": [{"type": "number"}, {"type": "string"}], "default": 0.5},
        },
        "required": ["title"],
        "additionalProperties": False,
    }


def test_nested_models_and_dataclasses_arrive_as_what_they_are():
    async def send(to: Address, at: Point, stops: list[Point]) -> None: ...

    checked = tool(send).parameters.validate({
        "to": {"street": "Elm", "number": 3},
        "at": {"x": 1},
        "stops": [{"x": 2, "y": 3}],
    })

    assert checked == {
        "to": Address(street="Elm", number=3),
        "at": Point(1, 0),
        "stops": [Point(2, 3)],
    }


@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\nArgs:\n    path (str): The file.\n",
        "Do it.\n\nParameters\n----------\npath : str\n    The file.\n",
        "Do it.\n\n:param path: The file.\n",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_parameter_descriptions_are_read_from_any_usual_docstring(docstring: str):
    async def act(path: str) -> None: ...

    act.__doc__ = docstring

    assert properties(act)["path"] == {"description": "The file.", "type": "string"}


GOOGLE = """Move a file.

It is not overwritten.

Args:
    source (str): The file,
        by its path.

    target: Where it goes.
    **options: Passed on.

Returns:
    The new path.
"""
NUMPY = """Move a file.

It is not overwritten.

Parameters
----------
source : str
    The file,
    by its path.
target
    Where it goes.

Returns
-------
str
    The new path.
"""
SPHINX = """Move a file.

It is not overwritten.

:param str source: The file,
    by its path.
:param target: Where it goes.
:type target: str
:return: The new path.
"""
LEFT = "Move a file.\n\nIt is not overwritten.\n\n"


@pytest.mark.parametrize(
    ("docstring", "description"),
    [
        (GOOGLE, f"{LEFT}Args:\n    **options: Passed on.\n\nReturns:\n    The new path."),
        (NUMPY, f"{LEFT}Returns\n-------\nstr\n    The new path."),
        (SPHINX, f"{LEFT}:return: The new path."),
        (
            SPHINX.replace("\n:", "\n@").replace("param str", "param"),
            f"{LEFT}@return: The new path.",
        ),
        ("Move a file.\n\nArgs:\n    ctx: The context.", "Move a file."),
    ],
    ids=["google", "numpy", "sphinx", "epydoc", "injected"],
)
def test_what_is_said_of_a_parameter_is_not_repeated_in_the_description(
    docstring: str, description: str
):
    async def move(ctx: RunContext, source: str, target: str, **options: Any) -> str:
        return source

    move.__doc__ = docstring
    told = tool(move)
    assert told.description == description
    told_of = [schema.get("description") for schema in told.input_schema["properties"].values()]
    assert told_of == (
        ["The file, by its path.", "Where it goes."] if "source" in docstring else [None, None]
    )


@pytest.mark.parametrize(
    "docstring",
    [
        "Move a file.\n\nArgs:\n    see the manual",
        "Move a file.\n\nArgs: source and target.",
        "Move a file.\n\nArgs:\n    path: of something else.",
        "Args:",
        "Parameters\n----------",
        "Move.\n\nArgs:\n    source: One.\n\n:param target: Two.",
    ],
)
def test_a_description_keeps_what_no_parameter_says(docstring: str):
    async def move(source: str, target: str = "") -> str:
        return source

    move.__doc__ = docstring
    assert tool(move).description == docstring


def test_arguments_listed_by_hand_leave_the_docstring_whole():
    async def move(ctx: RunContext, source: str) -> None:
        """Move a file.

        Args:
            source: The file.
        """

    listed = CodeFunction(callable=move, args=[FunctionArg("source", str)])
    assert listed.description == "Move a file.\n\nArgs:\n    source: The file."
    assert CodeFunction(callable=move).description == "Move a file."


def test_a_description_in_the_annotation_wins_over_the_docstring():
    async def act(
        a: Annotated[int, Field(description="from Field", gt=0)],
        b: Annotated[int, "from a string"],
    ) -> None:
        """Act.

        Args:
            a: from the docstring
            b: from the docstring
        """

    assert properties(act) == {
        "a": {"description": "from Field", "exclusiveMinimum": 0, "type": "integer"},
        "b": {"description": "from a string", "type": "integer"},
    }


def test_what_the_framework_fills_in_is_not_in_the_schema():
    async def act(
        ctx: RunContext, memory: ContextQueue, n: int, pool: ContextPool | None = None
    ) -> None: ...

    assert list(properties(act)) == ["n"]


def test_fixed_arguments_are_not_in_the_schema():
    @tool(api_key=lambda: "secret")
    async def call(url: str, api_key: str) -> str:
        return url

    assert list(call.input_schema["properties"]) == ["url"]


def test_parameters_may_have_any_name():
    async def act(schema: int, copy: int, model_config: int, _private: int, self: int) -> None: ...

    names = ["schema", "copy", "model_config", "_private", "self"]
    assert list(properties(act)) == names
    assert tool(_renamed(act)).parameters.validate(dict.fromkeys(names, 1)) == dict.fromkeys(
        names, 1
    )


def _renamed(fn: Callable[..., Any]) -> Callable[..., Any]:
    fn.__name__ += "_again"
    return fn


def test_annotations_may_name_what_is_defined_later_and_what_cannot_be_found():
    async def act(later: "Later", n: "int") -> None: ...

    made = tool(act)

    assert made.input_schema["properties"]["n"] == {"type": "integer"}
    assert "Later" in made.input_schema["$defs"]

    async def lost(thing: "NowhereToBeFound") -> None: ...  # noqa: F821  # pyright: ignore

    with pytest.raises(DefinitionError, match="'lost'.*NowhereToBeFound"):
        _ = tool(lost).input_schema


class Later(BaseModel):
    n: int


def test_a_type_without_a_json_schema_is_named():
    class Socket:
        pass

    async def act(socket: Socket) -> None: ...

    made = tool(act)
    socket = Socket()

    assert made.parameters.validate({"socket": socket}) == {"socket": socket}
    with pytest.raises(DefinitionError, match="'act' takes something that JSON cannot express"):
        _ = made.input_schema


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            {"nam": "x", "age": 1},
            "missing argument 'name'; unknown argument 'nam'; did you mean 'name'",
        ),
        (
            {"name": "x", "age": "old"},
            "argument 'age': Input should be a valid integer.* .got 'old'",
        ),
        ({"name": "x", "age": 1, "home": {"number": 0}}, "argument 'home'.street: Field required"),
        ({"name": "x", "age": 1, "zzz": 1}, "unknown argument 'zzz'; it takes name, age, home"),
    ],
)
def test_wrong_arguments_are_named_in_a_value_error(args: dict[str, Any], message: str):
    async def greet(name: str, age: int, home: Address | None = None) -> None: ...

    with pytest.raises(ValueError, match=message) as caught:
        tool(greet).parameters.validate(args)

    assert isinstance(caught.value, InvalidArgumentsError)
    assert str(caught.value).startswith("greet: ")


def test_a_long_wrong_value_is_shortened_in_the_message():
    async def act(n: int) -> None: ...

    with pytest.raises(InvalidArgumentsError) as caught:
        tool(act).parameters.validate({"n": "x" * 10_000})

    assert len(str(caught.value)) < 300


def test_function_args_make_a_schema_by_hand():
    function = CodeFunction(
        name="open",
        desc="Open it.",
        callable=lambda ctx, path, mode="r", limit=None: (path, mode, limit),
        args=[
            FunctionArg("path", str, "Which file"),
            FunctionArg("mode", str, "How", enum=["r", "w"]),
            FunctionArg("limit", int, optional=True),
        ],
    )

    assert function.input_schema == {
        "type": "object",
        "properties": {
            "path": {"description": "Which file", "type": "string"},
            "mode": {"description": "How", "enum": ["r", "w"], "type": "string"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "required": ["path", "mode"],
        "additionalProperties": False,
    }
    with pytest.raises(ValueError, match="'mode'"):
        function.parameters.validate({"path": "a", "mode": "x"})


def test_a_function_arg_takes_only_the_four_simple_types():
    with pytest.raises(TypeError, match="'where'.*use str, int, float or bool"):
        FunctionArg("where", Path)  # pyright: ignore[reportArgumentType]


def test_an_explicit_json_schema_is_kept_word_for_word_and_checked():
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "days": {"type": ["integer", "null"]},
            "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"oneOf": [{"type": "string"}]},
            "kind": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        },
        "required": ["city"],
    }
    function = CodeFunction(name="weather", callable=lambda ctx, **args: args, args=schema)

    assert function.input_schema is schema
    full = {"city": "Oslo", "days": None, "unit": "C", "tags": ["a"], "extra": {}, "kind": 1.5}
    assert function.parameters.validate(full) == full
    for wrong in ({}, {"city": 3}, {"city": "x", "unit": "K"}, {"city": "x", "tags": [1]}):
        with pytest.raises(InvalidArgumentsError):
            function.parameters.validate(wrong)


def test_a_schema_that_is_not_an_objects_is_refused():
    for wrong in ({"type": "string"}, {"properties": [1]}):
        with pytest.raises(DefinitionError, match="'f' must be an object schema"):
            CodeFunction(name="f", callable=lambda ctx: None, args=wrong)


def test_an_odd_schema_is_taken_as_far_as_it_goes():
    odd = {
        "properties": {
            "a": True,
            "b": {"type": "array", "items": False},
            "c": {"type": "array", "items": [{"type": "string"}]},
            "d": {"type": "what"},
            "e": {"enum": []},
            "f": {"const": 3},
        },
        "required": ["elsewhere"],
        "additionalProperties": True,
    }
    parameters = CodeFunction(name="f", callable=lambda ctx, **args: args, args=odd).parameters
    full = {"a": 1, "b": [1], "c": ["x"], "d": 2, "e": 3, "f": 3, "elsewhere": 4, "more": 5}
    assert parameters.validate(full) == full
    for wrong in ({}, {"elsewhere": 1, "b": 3}, {"elsewhere": 1, "f": 4}):
        with pytest.raises(InvalidArgumentsError):
            parameters.validate(wrong)


def test_extra_keywords_are_taken_where_the_function_takes_them():
    async def act(n: int, **more: Any) -> None: ...

    assert tool(act).parameters.validate({"n": "3", "other": 4}) == {"n": 3, "other": 4}


async def test_positional_only_and_rest_parameters_are_called_as_they_must_be():
    @tool
    async def act(a: int, /, b: int, *rest: int, c: int = 0) -> tuple[Any, ...]:
        return a, b, rest, c

    assert await act(1, 2, 3, 4, c=5) == (1, 2, (3, 4), 5)
    assert await act(1, b=2) == (1, 2, (), 0)
    assert list(act.input_schema["properties"]) == ["a", "b", "c"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        await act(b=2)  # pyright: ignore

    @tool
    async def gap(a: int = 1, b: int = 2, /) -> tuple[int, int]:
        return a, b

    assert await Turn(gap, kwargs={"b": 5}).returning() == (1, 5)


async def test_positional_arguments_go_where_python_would_put_them():
    @tool
    async def keyword_only(a: int, *, confirm: bool = False) -> tuple[int, bool]:
        return a, confirm

    @tool
    async def anything(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return args, kwargs

    @tool
    async def two(a: int, b: int = 0) -> tuple[int, int]:
        return a, b

    assert await keyword_only(1, 2) == (1, False)  # pyright: ignore
    assert await anything(1, args=2) == ((1,), {"args": 2})
    with pytest.raises(TypeError, match="two.. got multiple values for argument 'a'"):
        await two(1, a=2)  # pyright: ignore


async def test_a_caller_of_a_node_cannot_forge_what_the_framework_fills_in():
    @tool(key="secret")
    async def act(ctx: RunContext, key: str, **more: Any) -> str:
        return key

    async with Runtime() as runtime:
        for forged in ("ctx", "key"):
            with pytest.raises(InvalidArgumentsError, match=f"'{forged}' is not for the caller"):
                await runtime.invoke(act, {forged: "evil"})
        assert await runtime.invoke(act, {"other": 1}) == "secret"


async def test_optional_listed_arguments_that_are_left_out_are_none():
    def show(ctx: RunContext, x: str | None, y: str | None = "own default") -> Any:
        return x, y

    args = [FunctionArg("x", str, optional=True), FunctionArg("y", str, optional=True)]
    async with Runtime() as runtime:
        function = CodeFunction(callable=show, args=args)
        assert await runtime.invoke(function) == (None, "own default")


async def test_a_sync_wrapper_around_a_coroutine_function_is_awaited():
    async def inner(ctx: RunContext) -> str:
        return "inner"

    @functools.wraps(inner)
    def wrapper(ctx: RunContext) -> Any:
        return inner(ctx)

    async with Runtime() as runtime:
        assert await runtime.invoke(CodeFunction(callable=wrapper)) == "inner"


@pytest.mark.parametrize("argtype", [int, float])
@pytest.mark.parametrize("options", [{}, {"optional": True}, {"enum": [1, 2]}])
async def test_a_bool_is_no_number_in_a_listed_argument(argtype: Any, options: dict[str, Any]):
    async def act(ctx: RunContext, n: Any = None) -> Any:
        return n

    listed = FunctionArg("n", argtype, **options)
    function = CodeFunction(callable=act, args=[listed])
    async with Runtime() as runtime:
        assert await runtime.invoke(function, {"n": 1}) == 1
        with pytest.raises(ValueError, match="argument 'n': .* a number, not true or false .got T"):
            await runtime.invoke(function, {"n": True})
    agent = AgentFunction("count", "Count.", args=[listed], user_prompt_template="To {n}.")
    with pytest.raises(ValueError, match="argument 'n': .* a number, not true or false .got T"):
        agent.parameters.validate({"n": True})


def test_a_callable_that_takes_a_number_does_not_match_an_argument_that_is_a_bool():
    def act(ctx: RunContext, n: int) -> None: ...

    with pytest.raises(CallGraphError, match="takes 'n' as <class 'int'>, its args say"):
        Runtime([CodeFunction(callable=act, args=[FunctionArg("n", bool)])])


def test_the_values_of_an_argument_may_be_a_set():
    first = FunctionArg("mode", str, enum={"r", "w", "a", "x"})
    assert CodeFunction(callable=lambda ctx, mode: mode, args=[first]).input_schema["properties"][
        "mode"
    ]["enum"] == ["a", "r", "w", "x"]


def test_what_cannot_be_made_into_a_function_is_refused_with_a_remedy():
    def generate(ctx: RunContext) -> Any:
        yield 1

    with pytest.raises(DefinitionError, match="'generate' is a generator; write 'async def"):
        CodeFunction(callable=generate)
    with pytest.raises(DefinitionError, match="'mode' has an empty enum"):
        FunctionArg("mode", str, enum=[])
    with pytest.raises(DefinitionError, match="'n' is of type int, and its enum has 'x'; list"):
        FunctionArg("n", int, enum={"x"})
    with pytest.raises(DefinitionError, match="'n' is of type int, and its enum has True; list"):
        FunctionArg("n", int, enum=[1, True])

    async def with_field(n: int = Field(default=3)) -> None: ...

    with pytest.raises(DefinitionError, match="write 'n: Annotated"):
        _ = tool(with_field).input_schema


def test_defaults_that_json_cannot_say_are_left_out():
    async def act(a: float = float("nan"), b: object = object()) -> None: ...

    assert all("default" not in shown for shown in properties(act).values())


def test_a_wrong_value_that_cannot_show_itself_is_still_named():
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    async def act(n: int) -> None: ...

    with pytest.raises(InvalidArgumentsError, match="got <Shy: its __repr__ raised RuntimeError>"):
        tool(act).parameters.validate({"n": Shy()})


def test_callables_of_every_kind_become_functions():
    class Adder:
        def __call__(self, ctx: RunContext, a: int) -> int:
            return a

        def method(self, ctx: RunContext, a: int) -> int:
            return a

    def base(ctx: RunContext, a: int, b: int) -> int:
        return a + b

    for callable in (Adder(), Adder().method, partial(base, b=2)):
        function = CodeFunction(name="f", callable=callable)
        assert function.input_schema["properties"]["a"] == {"type": "integer"}


def test_a_code_function_must_take_a_context_first():
    def unlike(a: int) -> int:
        return a

    for wrong in (lambda: 1, unlike, lambda *, ctx: ctx):
        with pytest.raises(TypeError, match="'nothing' must take a RunContext first"):
            CodeFunction(name="nothing", callable=cast("Any", wrong))
