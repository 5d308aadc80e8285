"""Dependencies: what calls get as ``ctx.deps``, who makes it, and when it is closed."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from support import settle
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentOptions,
    Client,
    CodeFunction,
    Node,
    NodeState,
    PreToolUseEvent,
    RunContext,
    RunInfo,
    Runtime,
    ToolUse,
    Turn,
    agent,
    registries,
    tool,
)
from treefold.errors import (
    CallTimeoutError,
    CancellationException,
    ClosedError,
    DependencyError,
    UsageError,
)
from treefold.testing import ScriptedModel


@dataclass
class Database:
    """Counts how often it is closed."""

    name: str = "real"
    closed: int = 0
    runs: list[RunInfo] = field(default_factory=list[RunInfo])

    def find(self, key: str) -> str:
        assert not self.closed, "it is used after it was closed"
        return f"{key} in {self.name}"

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


with registries():

    @tool
    async def look_up(ctx: RunContext[Database], key: str) -> str:
        """Look something up."""
        return ctx.deps.find(key)

    def find(ctx: RunContext[Database], key: str) -> str:
        return ctx.deps.find(key)

    find_function = CodeFunction(callable=find)

    @agent(uses=[look_up])
    def answer(ctx: RunContext[Database], question: str) -> str:
        return f"{question} ({ctx.deps.name})"

    @tool(uses=[look_up, find_function])
    async def report(ctx: RunContext[Database]) -> list[str]:
        found = [await ctx.call(look_up, key="a"), await ctx.call(find_function, key="b")]
        return [*found, ctx.deps.name]

    @tool
    async def wait(ctx: RunContext[Database]) -> None:
        ctx.deps.find("begun")
        await asyncio.Event().wait()

    @tool
    async def fail(ctx: RunContext[Database]) -> None:
        raise ValueError(ctx.deps.find("why"))


class Maker:
    """A factory that remembers what it made."""

    def __init__(self) -> None:
        self.made: list[Database] = []

    def make(self, run: RunInfo) -> Database:
        self.made.append(Database(runs=[run]))
        return self.made[-1]

    @property
    def closed(self) -> list[int]:
        return [one.closed for one in self.made]


def scripted() -> ScriptedModel:
    return ScriptedModel(ToolUse("1", "look_up", {"key": "x"}), "Found.")


# Which calls get them


async def test_every_call_of_a_tree_has_the_dependencies_that_were_given_with_it():
    async with Runtime() as runtime:
        database = Database("given")
        assert await runtime.invoke(report, deps=database) == ["a in given", "b in given", "given"]
        assert database.closed == 0


async def test_an_agent_and_its_tools_have_them():
    model = scripted()
    async with Runtime(models=model, deps=Database("shared")) as runtime:
        node = runtime.invoke(answer, {"question": "Where?"})
        assert await node == "Found."
        assert node.children[0].outputs == "x in shared"
    assert "Where? (shared)" in str(runtime.get_view(node.id).transcript)


async def test_run_takes_them_too():
    async with Runtime(deps=Database("of the runtime")):
        assert await look_up.run("k", deps=Database("of the call")) == "k in of the call"
        assert await look_up.run("k") == "k in of the runtime"
    assert await look_up.run(key="k", deps=Database("alone")) == "k in alone"


def test_run_sync_takes_them_too():
    assert find_function.run_sync("k", deps=Database("alone")) == "k in alone"
    with Runtime(deps=Database("of the runtime")):
        assert find_function.run_sync("k") == "k in of the runtime"


async def test_an_argument_of_that_name_is_an_argument():
    @tool
    async def install(deps: str) -> str:
        return deps

    assert await install.run(deps="numpy") == "numpy"


async def test_the_calls_of_a_chat_have_them():
    options = AgentOptions(
        "Be brief.", scripted(), tools=[look_up], auto_execute_tools=True, deps=Database("chat")
    )
    async with Runtime() as runtime, Client(options) as client:
        await client.query("Where?")
        async for _ in client.receive_messages():
            pass
        (turn,) = runtime.list_toplevel()
        assert turn.children[0].outputs == "x in chat"


async def test_hooks_have_them():
    seen: list[str] = []

    async def guard(event: PreToolUseEvent) -> None:
        ctx = RunContext.current()
        assert ctx is not None
        seen.append(f"{event.tool_name} by {ctx.deps}")

    @tool
    async def greet(ctx: RunContext[str]) -> str:
        """Greet."""
        return f"Hello, {ctx.deps}!"

    @greet.before_invoke
    async def audit(ctx: RunContext[str]) -> None:
        seen.append(f"audited for {ctx.deps}")

    @agent(uses=[greet])
    def talk() -> str:
        return "Talk."

    model = ScriptedModel(ToolUse("1", "greet", {}), "Done.")
    async with Runtime(models=model, hooks={HOOK_PRE_TOOL_USE: [guard]}) as runtime:
        await runtime.invoke(talk, deps="Ada")
    assert seen == ["greet by Ada", "audited for Ada"]


@pytest.mark.parametrize("annotation", [
    "RunContext[Database]",
    "RunContext[Database] | None",
    "'RunContext[Unknown]'",
])  # fmt: skip
async def test_the_context_is_injected_whatever_dependencies_its_annotation_names(annotation: str):
    scope: dict[str, Any] = {"RunContext": RunContext, "Database": Database}
    exec(f"async def name(ctx: {annotation}) -> str: return ctx.deps.name", scope)
    made = tool(scope["name"])
    assert made.input_schema["properties"] == {}
    assert await made.run(deps=Database("found")) == "found"


# Without


async def test_a_run_without_dependencies_says_how_to_give_some():
    async with Runtime() as runtime:
        with pytest.raises(UsageError, match=r"look_up .*no dependencies.*Runtime\(deps="):
            await runtime.invoke(look_up, {"key": "k"})
        with pytest.raises(UsageError, match="there is no call here"):
            _ = runtime.get_ctx().deps


async def test_calls_below_others_have_those_of_their_run():
    @tool(uses=[look_up])
    async def outer(ctx: RunContext[Database]) -> str:
        return await look_up.run("k", deps=Database("another"))

    async with Runtime() as runtime:
        with pytest.raises(UsageError, match="deps= is for top-level calls"):
            await runtime.invoke(outer, deps=Database())


@pytest.mark.parametrize("own", [None, Database("own")])
async def test_a_chat_in_a_call_has_those_of_its_run(own: Database | None):
    @tool
    async def chat(ctx: RunContext[Database]) -> None:
        options = AgentOptions(
            "Be brief.", scripted(), tools=[look_up], auto_execute_tools=True, deps=own
        )
        async with Client(options) as client:
            await client.query("Where?")
            async for _ in client.receive_messages():
                pass

    async with Runtime() as runtime:
        node = runtime.invoke(chat, deps=Database("of the run"))
        if own is None:
            await node
            assert node.children[0].children[0].outputs == "x in of the run"
        else:
            with pytest.raises(UsageError, match="deps= is for top-level calls"):
                await node


async def test_turns_have_those_of_their_runtime():
    async with Runtime(deps=Database("of the runtime")):
        assert await Turn(look_up, kwargs={"key": "k"}).returning() == "k in of the runtime"


async def test_a_tool_that_is_called_directly_in_a_call_has_those_of_its_run():
    @tool
    async def outer(ctx: RunContext[Database]) -> str:
        return await look_up("k")

    assert await outer.run(deps=Database("found")) == "k in found"


async def test_a_context_that_was_kept_says_that_its_run_is_over():
    kept: list[RunContext[Database]] = []

    @tool
    async def keep(ctx: RunContext[Database]) -> None:
        kept.append(ctx)

    async with Runtime() as runtime:
        await runtime.invoke(keep, deps=Maker().make)
        with pytest.raises(ClosedError, match="has ended"):
            _ = kept[0].deps


# Factories


async def test_a_factory_is_called_once_for_each_tree_with_what_the_run_is():
    maker = Maker()

    @tool(tags=["nightly"], uses=[look_up])
    async def job(ctx: RunContext[Database], key: str) -> list[str]:
        return [await ctx.call(look_up, key), await ctx.call(look_up, key)]

    async with Runtime(deps=maker.make) as runtime:
        for node in [
            runtime.invoke(job, {"key": "a"}, key="first"),
            runtime.invoke(job, {"key": "b"}),
        ]:
            await node
        first, second = [database.runs for database in maker.made]
        assert first == [RunInfo("job", {"key": "a"}, frozenset({"nightly"}), 1, "first")]
        assert second == [RunInfo("job", {"key": "b"}, frozenset({"nightly"}), 2, "")]
        assert maker.closed == [1, 1]
    assert maker.closed == [1, 1]


async def _async(run: RunInfo) -> Database:
    await asyncio.sleep(0)
    return Database(run.function)


@asynccontextmanager
async def _managed(run: RunInfo) -> AsyncGenerator[Database]:
    async with asyncio.timeout(10):
        yield Database(run.function)


@contextmanager
def _sync_managed(run: RunInfo) -> Generator[Database]:
    yield Database(run.function)


async def _generator(run: RunInfo) -> AsyncGenerator[Database]:
    yield Database(run.function)


def _sync_generator(run: RunInfo) -> Generator[Database]:
    yield Database(run.function)


class _Named(Database):
    def __init__(self) -> None:
        super().__init__("look_up")


@pytest.mark.parametrize(
    "factory",
    [
        _async,
        _managed,
        _sync_managed,
        _generator,
        _sync_generator,
        _Named,
        lambda: Database("look_up"),
        lambda run: _async(run),
    ],
)
async def test_a_factory_may_be_any_kind_of_function(factory: Any):
    async with Runtime(deps=factory) as runtime:
        assert await runtime.invoke(look_up, {"key": "k"}) == "k in look_up"


async def test_an_object_that_can_be_called_is_no_factory():
    class Searcher:
        def __call__(self) -> str:
            return "called"

    @tool
    async def search(ctx: RunContext[Searcher]) -> str:
        return ctx.deps()

    async with Runtime(deps=Searcher()) as runtime:
        assert await runtime.invoke(search) == "called"


async def test_a_factory_that_fails_fails_the_run_in_words():
    def connect(run: RunInfo) -> Database:
        raise ConnectionError("refused")

    async with Runtime(deps=connect) as runtime:
        with pytest.raises(
            DependencyError, match=r"the dependencies of look_up.*connect.*ConnectionError: refused"
        ) as caught:
            await runtime.invoke(look_up, {"key": "k"})
        assert isinstance(caught.value.__cause__, ConnectionError)


async def test_a_factory_that_takes_too_long_is_stopped_with_its_run():
    stopped: list[str] = []

    async def connect(run: RunInfo) -> Database:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(run.function)
        return Database()

    async with Runtime(deps=connect) as runtime:
        with pytest.raises(CallTimeoutError):
            await runtime.invoke(look_up, {"key": "k"}, timeout=0.05)
    assert stopped == ["look_up"]


# Closing


async def test_it_is_closed_once_when_the_run_has_failed():
    maker = Maker()
    async with Runtime(deps=maker.make) as runtime:
        with pytest.raises(ValueError, match="why in real"):
            await runtime.invoke(fail)
        assert maker.closed == [1]
    assert maker.closed == [1]


async def test_it_is_closed_once_when_the_run_was_cancelled():
    maker = Maker()
    async with Runtime(deps=maker.make) as runtime:
        node = runtime.invoke(wait)
        await settle()
        node.cancel()
        with pytest.raises(CancellationException):
            await node
        assert maker.closed == [1]
    assert maker.closed == [1]


async def test_it_is_closed_once_when_the_runtime_is_closed():
    maker = Maker()
    runtime = Runtime(deps=maker.make)
    node = runtime.invoke(wait)
    await asyncio.to_thread(_started, runtime, node)
    await asyncio.to_thread(runtime.close)
    assert maker.closed == [1]


def _started(runtime: Runtime, node: Node) -> None:
    for view in runtime.watch(node, timeout=60):
        if view.state is NodeState.Running:
            return


def test_it_is_closed_once_after_ctrl_c():
    maker = Maker()

    @tool
    async def interrupt(ctx: RunContext[Database]) -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        async with Runtime(deps=maker.make) as runtime:
            await runtime.invoke(interrupt)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert maker.closed == [1]


async def test_a_close_that_hangs_ends_with_the_next_cancellation():
    begun = asyncio.Event()

    class Stuck(Database):
        async def aclose(self) -> None:
            begun.set()
            await asyncio.Event().wait()

    async with Runtime(deps=Stuck) as runtime:
        node = runtime.invoke(look_up, {"key": "k"})
        async with asyncio.timeout(60):
            await begun.wait()
            node.cancel()
            assert await node == "k in real"


async def test_it_is_closed_after_the_calls_that_still_run():
    maker = Maker()
    order: list[str] = []

    @tool
    async def slow(ctx: RunContext[Database]) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        ctx.deps.find("still open")
        order.append("child")

    @tool(uses=[slow])
    async def start(ctx: RunContext[Database]) -> None:
        ctx.call(slow)
        order.append("parent")

    async with Runtime(deps=maker.make) as runtime:
        await runtime.invoke(start)
    assert (order, maker.closed) == (["parent", "child"], [1])


async def test_a_context_manager_sees_how_the_run_ended():
    ends: list[str] = []

    @asynccontextmanager
    async def transaction(run: RunInfo) -> AsyncGenerator[Database]:
        try:
            yield Database()
        except BaseException as error:
            ends.append(type(error).__name__)
            raise
        else:
            ends.append("commit")

    async with Runtime(deps=transaction) as runtime:
        await runtime.invoke(look_up, {"key": "k"})
        with pytest.raises(ValueError, match="why"):
            await runtime.invoke(fail)
        node = runtime.invoke(wait)
        await settle()
        node.cancel()
        with pytest.raises(CancellationException):
            await node
    assert ends == ["commit", "ValueError", "CancellationException"]


async def test_what_cannot_be_closed_leaves_the_outcome_as_it_is(caplog: pytest.LogCaptureFixture):
    class Broken(Database):
        async def aclose(self) -> None:
            raise OSError("no")

    async with Runtime(deps=lambda: Broken("b")) as runtime:
        assert await runtime.invoke(look_up, {"key": "k"}) == "k in b"
    assert "the dependencies of look_up (run 1) could not be closed" in caplog.text


async def test_a_run_that_never_began_makes_nothing():
    maker = Maker()
    async with Runtime(deps=maker.make) as runtime:
        node = runtime.invoke(wait)
        node.cancel()
        with pytest.raises(CancellationException):
            await node
    assert maker.made == []
