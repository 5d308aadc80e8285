"""`@tool("name", "description", {schema})`: what it makes, and how that is run."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest

from support import double, settle, watch_tool
from treefold import (
    Agent,
    AgentFunction,
    RunContext,
    Runtime,
    StopReason,
    Tool,
    ToolRegistry,
    ToolResult,
    ToolType,
    ToolUse,
    Turn,
    tool,
)
from treefold.core.errors import (
    DefinitionError,
    InvalidArgumentsError,
    SerializationError,
    UsageError,
)
from treefold.testing import ScriptedModel

ADD = {"a": int, "b": int}


def adder(**options: Any) -> Tool[[Mapping[str, Any]], Any]:
    @tool("add", "Add two numbers.", ADD, **options)
    async def handler(args: dict[str, Any]) -> int:
        return args["a"] + args["b"]

    return handler


# What it is


def test_it_is_a_tool_with_the_name_and_description_that_were_given():
    add = adder(tags={"math"}, uses=[double], repeatable=True)

    assert isinstance(add, Tool)
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert (add.metadata.name, add.metadata.description) == ("add", "Add two numbers.")
    assert (add.tags, add.uses, add.repeatable) == ({"math"}, (double,), True)
    assert add.doc_tree() == {"name": "add", "description": "Add two numbers.", "subtools": []}


def test_it_is_not_registered_so_that_two_may_have_one_name():
    first, second = adder(), adder()

    assert first.name == second.name
    assert ToolRegistry.all() == []


def test_the_three_parts_may_be_given_by_name():
    @tool(name="shout", description="Say it loud.", input_schema={"text": str})
    async def one(args: Any) -> str:
        return args["text"].upper()

    @tool("shout", description="Say it loud.", input_schema={"text": str})
    async def other(args: Any) -> str:
        return args["text"].upper()

    assert one.to_openai_format() == other.to_openai_format()
    assert one.name == "shout"


async def test_a_tool_of_a_signature_may_still_fix_a_parameter_called_name_or_description():
    @tool(name="World", description="nice")
    async def greet(name: str, description: str) -> str:
        return f"Hello, {description} {name}!"

    assert await greet() == "Hello, nice World!"
    assert ToolRegistry.get("greet") is greet


def test_the_openai_format_is_the_same_for_both_forms():
    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    parameters = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }
    described = {"name": "add", "description": "Add two numbers."}
    assert adder().to_openai_format() == {
        "type": "function",
        "function": {**described, "parameters": parameters},
    }
    assert add.to_openai_format() == {
        "type": "function",
        "function": {**described, "parameters": parameters | {"additionalProperties": False}},
    }


# Executed directly


async def test_the_handler_gets_the_dict_as_it_is():
    given: list[Any] = []

    @tool("keep", "Keep it.", {"n": int})
    async def keep(args: dict[str, Any]) -> None:
        given.append(args)

    arguments = {"n": "no number", "unknown": 1}
    await keep.execute(arguments)
    await keep(arguments)

    assert [one is arguments for one in given] == [True, True]


async def test_the_signature_form_leaves_unknown_arguments_out_and_checks_nothing():
    assert await double.execute({"n": "ab", "unknown": 1}) == "abab"


async def test_a_sync_handler_runs_in_a_worker_thread():
    @tool("where", "Say where.", {})
    def where(args: dict[str, Any]) -> str:
        return threading.current_thread().name

    assert await where.execute({}) == "treefold worker"
    assert await Turn(where).returning() == "treefold worker"


async def test_a_wrapper_that_gives_a_coroutine_is_awaited():
    async def add(args: dict[str, Any], more: int) -> int:
        return args["a"] + more

    made = tool("add", "Add.", {"a": int})(lambda args: add(args, 1))

    assert await made.execute({"a": 1}) == 2


async def test_a_wrapper_that_only_takes_positional_arguments_is_called_with_one():
    def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def wrapper(*args: Any) -> Any:
            return await fn(*args)

        return wrapper

    @tool("add", "Add.", ADD)
    @logged
    async def add(args: dict[str, Any]) -> int:
        return args["a"] + args["b"]

    assert await add.execute({"a": 1, "b": 2}) == 3


async def test_a_bound_method_and_a_partial_are_handlers_too():
    class Counter:
        n = 0

        async def up(self, args: dict[str, Any]) -> int:
            self.n += args["by"]
            return self.n

    async def scaled(args: dict[str, Any], factor: int) -> int:
        return args["by"] * factor

    up = tool("up", "Count up.", {"by": int})(Counter().up)
    thrice = tool("thrice", "Times three.", {"by": int})(functools.partial(scaled, factor=3))

    assert await up.execute({"by": 2}) == 2
    assert await thrice.execute({"by": 2}) == 6


async def test_a_stream_is_iterated_when_called_and_gives_a_list_when_executed():
    @tool("count", "Count.", {"to": int})
    async def count(args: dict[str, Any]) -> AsyncIterator[int]:
        for n in range(args["to"]):
            yield n

    assert [n async for n in count({"to": 3})] == [0, 1, 2]
    assert await count.execute({"to": 3}) == [0, 1, 2]
    assert [n async for n in Turn(count, kwargs={"to": 2}).yielding()] == [0, 1]

    @tool
    async def count_too(to: int) -> AsyncIterator[int]:
        for n in range(to):
            yield n

    assert await count_too.execute({"to": 3, "unknown": 1}) == [0, 1, 2]


async def test_hooks_are_told_the_arguments_by_name():
    add = adder()
    seen = watch_tool(add)

    await add.execute({"a": 1, "b": 2})
    with pytest.raises(KeyError):
        await add.execute({"a": 1})

    assert seen[:3] == [("before", {"a": 1, "b": 2}), ("after", 3), ("before", {"a": 1})]
    assert [name for name, _ in seen] == ["before", "after", "before", "error"]


async def test_hooks_of_a_sync_stream_and_signature_form_are_fired_by_execute():
    @tool("count", "Count.", {})
    async def count(args: dict[str, Any]) -> AsyncIterator[int]:
        yield 1

    @tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    streamed, added = watch_tool(count), watch_tool(add)
    await count.execute({})
    await add.execute({"a": 1})

    assert streamed == [("before", {}), ("yield", 1), ("after", [1])]
    assert added == [("before", {"a": 1, "b": 1}), ("after", 2)]


async def test_leaving_execute_of_a_stream_closes_it():
    closed, waiting = asyncio.Event(), asyncio.Event()

    @tool("wait", "Wait.", {})
    async def wait(args: dict[str, Any]) -> AsyncIterator[int]:
        try:
            yield 1
            waiting.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with asyncio.timeout(60):
        task = asyncio.get_running_loop().create_task(wait.execute({}))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert closed.is_set()


# The lock


async def test_with_a_lock_one_call_runs_at_a_time():
    busy, most = 0, 0

    @tool("work", "Work.", {}, lock=True)
    async def work(args: dict[str, Any]) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(work.execute({}))
    assert most == 1


async def test_a_thread_that_was_given_up_keeps_its_lock_until_it_has_ended():
    started, finish = threading.Event(), threading.Event()
    log: list[str] = []

    @tool("work", "Work.", {"name": str}, lock=True)
    def work(args: dict[str, Any]) -> None:
        log.append(f"{args['name']} began")
        if args["name"] == "first":
            started.set()
            finish.wait(60)
        log.append(f"{args['name']} ended")

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        first = loop.create_task(work.execute({"name": "first"}))
        await asyncio.to_thread(started.wait, 5)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = loop.create_task(work.execute({"name": "second"}))
        third = loop.create_task(work.execute({"name": "third"}))
        await settle()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        finish.set()
        await third
    assert log == ["first began", "first ended", "third began", "third ended"]


async def test_a_tool_with_a_lock_that_calls_itself_is_told_so():
    @tool("again", "Again.", {}, lock=True)
    async def again(args: dict[str, Any]) -> None:
        await again.execute({})

    async with asyncio.timeout(60):
        with pytest.raises(UsageError, match="called itself, which is a deadlock"):
            await again.execute({})


# Run as a node


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"a": 1}, "add: missing argument 'b'"),
        ({"a": 1, "b": "two"}, "add: argument 'b': Input should be a valid integer.*got 'two'"),
        ({"a": 1, "b": 2, "c": 3}, "add: unknown argument 'c'; it takes a, b"),
    ],
)
async def test_what_is_invoked_is_checked_and_the_wrong_argument_named(
    args: dict[str, Any], message: str
):
    async with Runtime() as runtime:
        with pytest.raises(InvalidArgumentsError, match=message):
            await runtime.invoke(adder(), args)


async def test_arguments_are_brought_to_plain_types_and_defaults_are_not_filled_in():
    @tool("show", "Show.", {"n": int, "limit": {"type": "integer", "default": 10}})
    async def show(args: dict[str, Any]) -> dict[str, Any]:
        return args

    async with Runtime() as runtime:
        assert await runtime.invoke(show, {"n": "5"}) == {"n": 5}
        assert await runtime.invoke(show, {"n": 5, "limit": 2}) == {"n": 5, "limit": 2}


async def test_a_model_calls_it_and_is_told_of_wrong_arguments():
    model = ScriptedModel(
        ToolUse("1", "add", {"a": 1, "b": "x"}), ToolUse("2", "add", {"a": 1, "b": 2}), "3"
    )
    agent = AgentFunction(
        "calculate",
        "Calculate.",
        user_prompt_template="1 + 2?",
        uses=[adder()],
        default_model=model,
    )

    async with Runtime([agent]) as runtime:
        node = runtime.invoke(agent)
        assert await node == "3"
        told = [part for part in node.get_transcript() if isinstance(part, ToolResult)]
    assert [part.is_error for part in told] == [True, False]
    assert "argument 'b'" in told[0].content
    assert told[1].content == "3"


async def test_it_is_a_turn_whose_unknown_arguments_are_left_out():
    turn = Turn(adder(), kwargs={"a": 1, "b": lambda: 2, "c": 3})

    assert await turn.returning() == 3
    assert turn.stop_reason is StopReason.COMPLETED
    assert await Turn(adder(), args=[1, 2]).returning() == 3


async def test_a_queue_agent_runs_it_and_ends_when_a_check_says_so():
    @tool("done", "Whether it is done.", {}, type=ToolType.COMPLETION_CHECK)
    def done(args: dict[str, Any]) -> bool:
        return True

    add = adder()
    agent = Agent("clerk", "Adds", [add, done])
    for turn in [Turn(add, kwargs={"a": 1, "b": 2}), Turn(done), Turn(add)]:
        await agent.put(turn)

    async with asyncio.timeout(60):
        values = [value async for _, value in agent.run()]
    assert values == [3, True]
    assert len(agent.turns) == 1


async def test_a_turn_of_it_cannot_be_saved_unless_it_is_registered():
    add = adder()
    turn = Turn(add, kwargs={"a": 1, "b": 2})

    with pytest.raises(SerializationError, match="not in the ToolRegistry"):
        turn.to_dict()

    ToolRegistry.register(add.name, add)
    assert await Turn.from_dict(turn.to_dict()).returning() == 3


async def test_a_handler_may_ask_for_the_context_and_invoke_what_it_uses():
    @tool("quadruple", "Times four.", {"n": int}, uses=[double])
    async def quadruple(args: dict[str, Any], ctx: RunContext) -> int:
        return 2 * await ctx.invoke(double, {"n": args["n"]})

    async with Runtime([quadruple]) as runtime:
        node = runtime.invoke(quadruple, {"n": 1})
        assert await node == 4
        assert [child.function for child in node.get_children()] == [double]  # pyright: ignore
    assert quadruple.input_schema["required"] == ["n"]


async def test_a_sync_handler_may_ask_for_the_context_too():
    @tool("quadruple", "Times four.", {"n": int}, uses=[double])
    def quadruple(args: dict[str, Any], ctx: RunContext) -> int:
        return 2 * ctx.invoke(double, {"n": args["n"]}).result(60)

    async with Runtime([quadruple]) as runtime, asyncio.timeout(60):
        assert await runtime.invoke(quadruple, {"n": 1}) == 4


# What is refused


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("add",), "no description and no input_schema: write @tool\\('add', \"description\""),
        (("add", "Add."), "tool 'add' has no input_schema"),
        ((1, "Add.", {}), "the name of a tool must be a non-empty str, got 1"),
        ((" ", "Add.", {}), "the name of a tool must be a non-empty str, got ' '"),
        (("add", None, {}), "the description of tool 'add' must be a str, got None"),
        (("add", "Add.", [int]), "the schema of tool 'add' must be a dict"),
        (
            ("add", "Add.", {"a": "string"}),
            "parameter 'a' of tool 'add' must be a type, got 'string'",
        ),
        (("add", "Add.", {"a": None}), "parameter 'a' of tool 'add' must be a type, got None"),
        (("add", "Add.", {1: int}), "the parameter names of tool 'add' must be strings, got 1"),
        (("add", "Add.", {"type": "object"}), "has 'type': 'object' and 'properties'"),
        (("add", "Add.", {"a": {"required": "yes"}}), "'required' of parameter 'a'"),
        (
            ("add", "Add.", {"type": "object", "properties": {}, "required": True}),
            "'required' in the schema of 'add' is a list",
        ),
        (("add", "Add.", {}, 4), "a name, a description and a schema"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(args: tuple[Any, ...], message: str):
    with pytest.raises(DefinitionError, match=message):
        tool(*args)


async def nothing() -> None: ...
async def two(one: Any, other: Any) -> None: ...
async def context_first(ctx: RunContext, args: Any) -> None: ...
async def only_context(ctx: RunContext) -> None: ...
async def only_keywords(*, args: Any) -> None: ...
async def method(self: Any, args: Any) -> None: ...
def generator(args: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (nothing, "must take one dict, which nothing\\(\\) -> None does not: write 'async def add"),
        (two, "must take one dict"),
        (context_first, "must take one dict"),
        (only_context, "must take one dict"),
        (only_keywords, "must take one dict"),
        (method, "is a method"),
        (generator, "is a generator"),
        (1, "must be a function, got 1"),
        (double, "must be a function, got <Tool double>"),
        (dict, "must have a signature, which <class 'dict'> has not"),
    ],
)
def test_a_handler_that_does_not_take_one_dict_is_refused(handler: Any, message: str):
    with pytest.raises(DefinitionError, match=message):
        tool("add", "Add.", {})(handler)


def test_arguments_cannot_be_fixed():
    with pytest.raises(DefinitionError, match="takes no fixed arguments, got unit"):
        cast("Any", tool)("add", "Add.", ADD, unit="m")


@pytest.mark.parametrize("option", ["lock", "type", "uses"])
def test_options_are_checked_as_in_the_other_form(option: str):
    with pytest.raises(DefinitionError, match=option):
        adder(**{option: ["wrong"]})


def test_a_completion_check_has_to_say_that_it_returns_a_bool():
    with pytest.raises(DefinitionError, match="returns a bool"):
        adder(type=ToolType.COMPLETION_CHECK)
