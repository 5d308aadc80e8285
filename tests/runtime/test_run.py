"""``fn.run``, ``fn.run_sync`` and ``ctx.call``: calls that are written like calls."""

import threading
from collections.abc import AsyncIterator

import pytest

from treefold import (
    AgentFunction,
    CallGraphError,
    CodeFunction,
    Node,
    RunContext,
    Runtime,
    agent,
    registries,
    tool,
)
from treefold.core.errors import (
    BlockingCallError,
    InvalidArgumentsError,
    NoModelError,
    UsageError,
)
from treefold.testing import ScriptedModel


def add(ctx: RunContext, a: int, b: int = 10) -> int:
    return a + b


async def count(ctx: RunContext, to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


def fail(ctx: RunContext) -> None:
    raise KeyError("no")


ADD = CodeFunction(callable=add)


@agent(model=ScriptedModel("Good morning!"))
def translate(text: str) -> str:
    """Translate a text."""
    return f"Translate: {text}"


async def test_run_starts_a_call_and_returns_its_node():
    node = ADD.run(1, b=2)

    assert isinstance(node, Node)
    assert (await node, node.path, dict(node.inputs)) == (3, node.path, {"a": 1, "b": 2})


async def test_run_is_a_call_of_the_runtime_whose_block_this_is():
    async with Runtime() as runtime:
        node = ADD.run(a=1)

        assert await node == 11
        assert runtime.list_toplevel() == [node]


async def test_run_within_a_call_is_its_child():
    async def work(ctx: RunContext) -> int:
        return await ADD.run(1)

    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=work, uses=[ADD]))

        assert await node == 11
        assert [child.fn for child in node.children] == ["add"]
        with pytest.raises(CallGraphError, match="uses"):
            await CodeFunction(callable=work, name="unlisted").run()


def test_run_sync_returns_the_value_and_leaves_no_thread():
    before = set(threading.enumerate())

    assert ADD.run_sync(1, b=1) == 2
    assert CodeFunction(callable=count).run_sync(to=3) == [0, 1, 2]
    assert translate.run_sync("Guten Morgen!") == "Good morning!"
    assert set(threading.enumerate()) <= before


def test_run_sync_raises_what_the_call_raises():
    with pytest.raises(KeyError, match="no"):
        CodeFunction(callable=fail).run_sync()
    with pytest.raises(InvalidArgumentsError, match="a"):
        ADD.run_sync(a="one")  # pyright: ignore[reportArgumentType]


def test_run_sync_in_the_sync_code_of_a_call_is_its_child():
    def work(ctx: RunContext) -> int:
        return ADD.run_sync(1) + ADD.run_sync(2)

    with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=work, uses=[ADD]))

        assert node.result(60) == 23
        assert [child.inputs["a"] for child in node.children] == [1, 2]


def test_run_sync_in_a_with_block_is_a_call_of_that_runtime():
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    with Runtime(models=ScriptedModel("Hello!", "Hi!")) as runtime:
        assert greet.run_sync("Ann") == "Hello!"
        assert greet("Ann").result(60) == "Hi!"
        assert [node.fn for node in runtime.list_toplevel()] == ["greet", "greet"]
    with pytest.raises(NoModelError):
        greet.run_sync("Ann")


async def test_a_with_block_in_async_code_leaves_the_calls_of_its_loop_alone():
    with Runtime() as runtime:
        assert await ADD.run(1) == 11
        assert runtime.list_toplevel() == []


def test_a_with_block_in_the_code_of_a_call_leaves_its_child_calls_alone():
    def work(ctx: RunContext) -> int:
        with Runtime():
            return ADD.run_sync(1)

    with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=work, uses=[ADD]))

        assert node.result(60) == 11
        assert [child.fn for child in node.children] == ["add"]


async def test_run_sync_does_not_block_an_event_loop():
    with pytest.raises(BlockingCallError, match=r"'await add\.run\(\.\.\.\)'"):
        ADD.run_sync(1)


def test_run_needs_an_event_loop():
    with pytest.raises(UsageError, match="run_sync"):
        ADD.run(1)


async def test_arguments_are_bound_as_python_binds_them():
    async with Runtime() as runtime:
        assert await runtime.call(ADD, 1, 2) == 3
        assert await runtime.get_ctx().call(ADD, 1, b=3) == 4
        with pytest.raises(TypeError, match="takes 2 positional arguments, and 3 were given"):
            runtime.call(ADD, 1, 2, 3)  # pyright: ignore[reportCallIssue]
        with pytest.raises(TypeError, match="multiple values for a"):
            runtime.call(ADD, 1, a=2)  # pyright: ignore[reportCallIssue]
        with pytest.raises(InvalidArgumentsError):
            await runtime.call(ADD, c=1)  # pyright: ignore[reportCallIssue]


async def test_an_argument_that_has_no_place_is_refused_and_not_dropped():
    def area(ctx: RunContext, width: int, *, height: int = 3) -> int:
        return width * height

    def total(ctx: RunContext, first: int, *rest: int) -> int:
        return sum((first, *rest))

    async with Runtime() as runtime:
        with pytest.raises(TypeError, match="takes 1 positional argument, and 2 were given"):
            runtime.call(CodeFunction(callable=area), 1, 2)  # pyright: ignore[reportCallIssue]
        with pytest.raises(TypeError, match="takes 1 positional argument, and 2 were given"):
            runtime.call(CodeFunction(callable=total), 1, 2)
        assert await runtime.call(CodeFunction(callable=total), 1) == 1


async def test_an_argument_may_have_the_name_of_a_parameter_of_call():
    def name(ctx: RunContext, function: str, self: str) -> str:
        return function + self

    async with Runtime() as runtime:
        assert await runtime.call(CodeFunction(callable=name), function="f", self="s") == "fs"


async def test_a_tool_and_an_agent_run_in_the_same_way():
    with registries():

        @tool
        async def double(n: int) -> int:
            return 2 * n

        @agent(model="scripted")
        def greet(name: str) -> str:
            return f"Greet {name}."

        model = ScriptedModel("Good morning!")
        async with Runtime(models={"scripted": model}) as runtime:
            assert await double.run(2) == 4
            assert await greet.run(name="Ann") == "Good morning!"
            assert [node.fn for node in runtime.list_toplevel()] == ["double", "greet"]


def test_a_node_shows_only_what_is_for_programs():
    node: Node = Runtime().invoke(AgentFunction("a", "", user_prompt_template="A", returns=int))
    shown = {name for name in dir(node) if not name.startswith("_")}
    node.cancel()

    assert shown == {
        "cancel", "children", "cost", "ended_at", "fn", "get_children", "get_transcript", "index",
        "inputs", "outputs", "parent", "path", "result", "sequence", "started_at", "state",
        "tool_use_id", "total_cost", "total_usage", "usage", "exception", "function", "id",
        "waiting_on",
    }  # fmt: skip
