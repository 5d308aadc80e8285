"""The types of calls, as type checkers must see them; it is checked, and never run.

``assert_type`` fails in the type checker if the type is another one. Each comment that ignores an
error is an expectation, too: mypy and basedpyright both report one that ignores nothing.
"""

# ruff: noqa: B018, D103, RUF029, RUF100 - only the types matter
# pyright: reportUnnecessaryTypeIgnoreComment=true, reportUnusedExpression=false
# pyright: reportUnusedCoroutine=false, reportUnusedCallResult=false
# mypy: disable-error-code=unused-coroutine

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Literal, assert_type

from pydantic import BaseModel

from treefold import (
    Agent,
    AgentFunction,
    AgentOptions,
    CodeFunction,
    Ensemble,
    Function,
    Node,
    NodeView,
    RunContext,
    RunInfo,
    Runtime,
    ThinkMore,
    Tool,
    agent,
    show,
    tool,
)


class Report(BaseModel):
    """A typed result."""

    title: str


# Code


def add(ctx: RunContext, a: int, b: int = 0) -> int:
    return a + b


async def fetch(ctx: RunContext, url: str) -> bytes:
    return url.encode()


async def count(ctx: RunContext, to: int) -> AsyncIterator[int]:
    yield to


add_function = CodeFunction(callable=add)
fetch_function = CodeFunction(callable=fetch, name="get", desc="Get a page.")
count_function = CodeFunction(callable=count)


async def code(ctx: RunContext) -> None:
    assert_type(await ctx.invoke(add_function, {"a": 1}), int)
    assert_type(await ctx.invoke(fetch_function, {"url": "x"}), bytes)
    assert_type(await ctx.invoke(count_function, {"to": 3}), list[int])
    assert_type(ctx.call(add_function, 1, b=2), Node[int])
    assert_type(await ctx.call(fetch_function, url="x"), bytes)
    assert_type(await add_function.run(1), int)
    assert_type(add_function.run_sync(a=1), int)
    assert_type(await show(add_function.run(1)), int)
    assert_type(show(add_function.run(1)).result(), int)
    ctx.call(add_function, a="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.call(add_function, c=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    add_function.run_sync()  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


# Tools


@tool
async def double(n: int) -> int:
    return 2 * n


@tool(uses=[double])
async def quadruple(ctx: RunContext, n: int, *, label: str = "") -> int:
    return await ctx.call(double, n=await ctx.call(double, n))


@tool
async def words(text: str) -> AsyncIterator[str]:
    yield text


@tool(lock=True)
async def words_of(ctx: RunContext, text: str) -> AsyncIterator[str]:
    yield text


@tool(greeting="Hello")
async def greet(name: str, greeting: str) -> str:
    return f"{greeting}, {name}!"


@tool
async def anything(value: Any) -> str:
    return str(value)


@tool("search", "Search.", {"query": str})
async def search(args: dict[str, Any]) -> list[str]:
    return [args["query"]]


@double.subtool
async def triple(n: int) -> float:
    return 3.0 * n


async def tools(ctx: RunContext) -> None:
    assert_type(double(1), Coroutine[Any, Any, int])
    assert_type(words("x"), AsyncGenerator[str, None])
    assert_type(await ctx.invoke(double, {"n": 1}), int)
    assert_type(await ctx.call(quadruple, 1, label="x"), int)
    assert_type(await quadruple(1, label="x"), int)
    assert_type(await ctx.call(words, text="a b"), list[str])
    assert_type(await ctx.call(words_of, text="a b"), list[str])
    assert_type(await ctx.call(greet, name="World"), str)
    # mypy cannot choose among the overloads, because the type of the handler contains Any.
    found: list[str] = await ctx.invoke(search, {"query": "bees"})
    assert_type(await triple.run(1), float)
    await ctx.call(anything, {"any": found})
    double("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    quadruple.run("1")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# Agents


@agent
def summarize(text: str) -> str:
    return f"Summarize: {text}"


@agent(returns=Report, uses=[double, summarize])
def report(topic: str, length: int = 100) -> str:
    return f"Report on {topic}"


@agent(returns=list[Report], system="Be brief.")
async def reports(ctx: RunContext, topics: Sequence[str]) -> str:
    return f"Report on {topics}"


@agent(returns=Literal["yes", "no"])
def decide(question: str) -> str:
    return question


listed = AgentFunction("listed", "Write a list.", user_prompt_template="List.", returns=list[str])
plain = AgentFunction("plain", "Write.", user_prompt_template="Write.")


async def agents(ctx: RunContext) -> None:
    assert_type(await ctx.invoke(summarize, {"text": "x"}), str)
    assert_type(await ctx.call(report, topic="bees"), Report)
    assert_type(await report("bees", length=3), Report)
    assert_type(await reports.run(["bees"]), list[Report])
    assert_type(report.run_sync("bees"), Report)
    assert_type(await ctx.invoke(decide, {"question": "?"}), Any)
    assert_type(await ctx.invoke(listed), list[str])
    assert_type(await plain.run(), str)
    assert_type(await ctx.call(Ensemble(report, {"local": 2}), topic="bees"), Report)
    assert_type(await ctx.call(ThinkMore(summarize), "x"), str)
    report.run(length=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    report(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# The runtime


def runtime(run: Runtime) -> None:
    node = run.invoke(report, {"topic": "bees"})
    assert_type(node, Node[Report])
    assert_type(node.result(), Report)
    assert_type(run.call(add_function, 1).result(timeout=3), int)
    assert_type(run.fork(node), Node[Report])
    assert_type(run.fork(node.id), Node[Any])
    assert_type(node.children, Sequence[Node[Any]])
    assert_type(node.get_children(), list[Node[Any] | list[Node[Any]]])
    assert_type(node.fn, str)
    view = run.get_view(node.id)
    assert_type(view, NodeView)
    assert_type(view.fn, str)


# What a program may write down itself


def twice(function: Function[[int], int]) -> int:
    return function.run_sync(function.run_sync(1))


def use() -> None:
    twice(double)
    twice(report)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    known: Tool[[int], Coroutine[Any, Any, int], int] = double
    known.run(1)
    several: list[Function] = [double, report, add_function, search]
    uses: Callable[..., Function] = several.pop
    uses()


# The names of other libraries


@agent(output_type=Report, instructions="You are brief.", tools=[add_function], max_turns=3)
def find_report(program: str) -> str:
    return program


@agent(output_type=int | str, description="Find it.")
def find_either(program: str) -> str:
    return program


named_function = AgentFunction(
    "named",
    description="It is named.",
    instructions="You are brief.",
    tools=[add_function],
    model="local",
    output_type=Report,
    max_turns=3,
)
AgentFunction("misnamed", max_turns="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
chat_options = AgentOptions(instructions="You are brief.", model="local")
queue = Agent(
    "queue",
    "Runs turns.",
    [add_function],
    instructions="",  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
)


async def other_names(ctx: RunContext) -> None:
    assert_type(await ctx.call(find_report, program="x"), Report)
    assert_type(await ctx.call(find_either, program="x"), Any)
    assert_type(await ctx.invoke(named_function), Report)
    assert_type(chat_options.max_turns, int)


# Dependencies


class Database:
    """What calls get as ``ctx.deps``."""

    def find(self, key: str) -> bytes:
        return key.encode()


@tool
async def look_up(ctx: RunContext[Database], key: str) -> bytes:
    assert_type(ctx.deps, Database)
    ctx.deps.lose(key)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return ctx.deps.find(key)


@tool(uses=[look_up])
async def look_up_all(ctx: RunContext[Database], *keys: str) -> AsyncIterator[bytes]:
    for key in keys:
        yield await ctx.call(look_up, key)


async def rules(ctx: RunContext[Database]) -> str:
    return ctx.deps.find("rules").decode()


@agent(system=rules, uses=[look_up])
async def research(ctx: RunContext[Database], topic: str) -> str:
    assert_type(ctx.deps.find(topic), bytes)
    return topic


@agent(system=lambda ctx: f"You are {ctx.deps.name}.")
def introduce(topic: str) -> str:
    return topic


def size(ctx: RunContext[Database], key: str) -> int:
    return len(ctx.deps.find(key))


size_function = CodeFunction(callable=size)
with_rules = AgentFunction("ruled", "Rule.", user_prompt_template="Go.", system_prompt=rules)
ruled_chat = AgentOptions(rules, deps=Database())


def connect(run: RunInfo) -> Database:
    assert_type(run.function, str)
    return Database()


async def dependencies(ctx: RunContext) -> None:
    assert_type(ctx.deps, object)
    assert_type(await ctx.call(look_up, key="x"), bytes)
    assert_type(await look_up("x"), bytes)
    assert_type(await look_up.run(key="x", deps=Database()), bytes)
    assert_type(await research.run("x", deps=connect), str)
    assert_type(size_function.run_sync("x", deps=Database()), int)
    run = Runtime([look_up], deps=connect)
    assert_type(run.invoke(look_up, {"key": "x"}, deps=Database()).result(), bytes)
    ctx.call(look_up, key=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    research(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
