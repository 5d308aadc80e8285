"""What calls keep between them."""

import asyncio
import logging
import threading

import pytest

from treefold import CodeFunction, RunContext, Runtime, SessionBag, SessionScope, Turn, tool
from treefold.core.errors import NoParentSessionError, UsageError


class Resource:
    def __init__(self, closed: list[str], name: str) -> None:
        self._closed = closed
        self._name = name

    def close(self) -> None:
        self._closed.append(self._name)


class AsyncResource(Resource):
    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self._closed.append(f"{self._name} awaited")


def own(ctx: RunContext, scope: SessionScope) -> object:
    return ctx.get_or_put(scope, "test", "thing", object)


async def test_the_three_scopes_are_the_bags_of_root_parent_and_self():
    found: dict[str, list[object]] = {}

    def look(ctx: RunContext) -> None:
        found[ctx.node.path] = [
            own(ctx, SessionScope.TopLevel),
            own(ctx, SessionScope.Parent) if ctx.node.parent else None,
            own(ctx, SessionScope.Self),
        ]

    @tool
    async def leaf(ctx: RunContext) -> None:
        look(ctx)

    @tool(uses=[leaf])
    async def middle(ctx: RunContext) -> None:
        look(ctx)
        await ctx.invoke(leaf)

    @tool(uses=[middle])
    async def top(ctx: RunContext) -> None:
        look(ctx)
        await ctx.invoke(middle)

    async with Runtime() as runtime:
        await runtime.invoke(top)

    root, child, grandchild = found["1"], found["1.1"], found["1.1.1"]
    assert root[0] is root[2]  # for a root, TopLevel is Self
    assert child[0] is root[2]
    assert child[1] is root[2]  # for a child of the root, Parent is TopLevel
    assert grandchild[0] is root[2]
    assert grandchild[1] is child[2]
    assert len({id(thing) for thing in grandchild}) == 3  # deeper down all three differ


async def test_a_top_level_call_has_no_parent_bag():
    @tool
    async def top(ctx: RunContext) -> None:
        own(ctx, SessionScope.Parent)

    async with Runtime() as runtime:
        with pytest.raises(NoParentSessionError, match="top was called at top level"):
            await runtime.invoke(top)


async def test_parallel_calls_get_the_one_object_that_was_made_once():
    made: list[object] = []
    barrier = threading.Barrier(8)

    def factory() -> object:
        made.append(object())
        return made[-1]

    def worker(ctx: RunContext) -> int:
        barrier.wait(60)
        return id(ctx.get_or_put(SessionScope.Parent, "test", "shared", factory))

    workers = CodeFunction(callable=worker)

    @tool(uses=[workers])
    async def parent(ctx: RunContext) -> set[int]:
        nodes = [ctx.invoke(workers) for _ in range(8)]
        return {await node for node in nodes}

    async with Runtime() as runtime:
        assert await runtime.invoke(parent) == {id(made[0])}
    assert len(made) == 1


def test_a_factory_that_raises_leaves_nothing_behind():
    bag = SessionBag()
    with pytest.raises(ZeroDivisionError):
        bag.get_or_put("a", "b", lambda: 1 / 0)
    assert bag.get_or_put("a", "b", lambda: "made") == "made"


def test_an_async_factory_is_refused():
    async def factory() -> str:
        return "never"

    with pytest.raises(UsageError, match="the factory of a/b is async"):
        _ = SessionBag().get_or_put("a", "b", factory)


def test_a_factory_may_use_the_same_bag():
    bag = SessionBag()
    assert bag.get_or_put("a", "x", lambda: bag.get_or_put("a", "y", lambda: 1) + 1) == 2


async def test_deleting_a_tree_closes_what_its_bags_hold_newest_first():
    closed: list[str] = []

    @tool
    async def keep(ctx: RunContext) -> None:
        for make, name in [(Resource, "first"), (AsyncResource, "second"), (Resource, "third")]:
            ctx.get_or_put(SessionScope.Self, "test", name, lambda m=make, n=name: m(closed, n))

    async with Runtime() as runtime:
        node = runtime.invoke(keep)
        await node
        assert closed == []  # a finished tree can still be looked into
        await asyncio.to_thread(runtime.delete, node.id)
        for _ in range(5):
            await asyncio.sleep(0)
        assert closed == ["third", "second awaited", "first"]


async def test_closing_the_runtime_closes_everything_even_if_one_closing_fails(
    caplog: pytest.LogCaptureFixture,
):
    closed: list[str] = []

    class Broken:
        def close(self) -> None:
            raise OSError("cannot close")

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "good", lambda: Resource(closed, "good"))
        ctx.get_or_put(SessionScope.Self, "test", "broken", Broken)

    with caplog.at_level(logging.ERROR):
        async with Runtime() as runtime:
            await runtime.invoke(keep)
            await runtime.invoke(keep)

    assert closed == ["good", "good"]
    assert caplog.messages == ["closing test/broken of a session bag failed"] * 2


async def test_a_tree_of_the_ambient_runtime_closes_its_bags_when_it_ends():
    closed: list[str] = []

    @tool
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: Resource(closed, "it"))

    await Turn(keep).returning()
    await asyncio.sleep(0)
    assert closed == ["it"]


class Stop(BaseException):
    """Something that no code expects of what it closes."""


class Unclosable:
    def close(self) -> None:
        raise Stop


async def test_a_tree_of_the_ambient_runtime_whose_end_fails_closes_its_bags_as_well():
    closed: list[str] = []

    @tool
    async def leaf(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "below", lambda: Resource(closed, "below"))

    @tool(uses=[leaf])
    async def keep(ctx: RunContext) -> None:
        ctx.get_or_put(SessionScope.Self, "test", "it", lambda: AsyncResource(closed, "it"))
        await ctx.invoke(leaf)

    with pytest.raises(Stop):
        await keep.run(deps=Unclosable)
    assert closed == ["below", "it awaited"]
