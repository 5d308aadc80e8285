"""Calls that end although something fails that is no code of theirs."""

import asyncio
from decimal import Decimal
from typing import Any, Self

import pytest

from support import double
from treefold import Budget, CodeFunction, MemoryStore, NodeState, RunContext, Runtime, Turn
from treefold.core.call_request import CallRequest
from treefold.errors import TooLargeError

PATIENCE = 60  # seconds


class Numpy(float):
    """A float whose sums are of its own class, as those of numpy are."""

    def __add__(self, other: float) -> Self:
        return type(self)(float(self) + other)

    __radd__ = __add__


class Fragile(float):
    """A float that cannot be added to anything."""

    def __radd__(self, other: float) -> float:
        raise ZeroDivisionError(f"{other} cannot be added")


class Worn(float):
    """A float that can be added to something once."""

    is_worn = False

    def __radd__(self, other: float) -> float:
        if self.is_worn:
            raise ZeroDivisionError(f"{other} cannot be added")
        self.is_worn = True
        return float(self) + other


@pytest.mark.parametrize("store", [None, MemoryStore()])
async def test_any_number_is_a_timeout_a_duration_or_the_seconds_of_a_budget(
    store: MemoryStore | None,
):
    async def top(ctx: RunContext) -> list[int]:
        await ctx.sleep(Numpy(0.01))
        limit: Any = Decimal(5)
        return [
            await ctx.invoke(double, {"n": 1}, timeout=Numpy(5)),
            await ctx.invoke(double, {"n": 2}, budget=Budget(seconds=limit)),
            await ctx.invoke(double, {"n": 3}, budget=Budget(seconds=Numpy(5))),
            await Turn(double, Numpy(5), kwargs={"n": 4}).returning(),
        ]

    function = CodeFunction(callable=top, uses=[double])
    async with asyncio.timeout(PATIENCE), Runtime(store=store) as runtime:
        node = runtime.invoke(function, timeout=Numpy(5), budget=Budget(seconds=Numpy(5)))
        assert await node == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("seconds", "store", "error"),
    [
        (Fragile(77), None, ZeroDivisionError),
        (Fragile(77), MemoryStore(), ZeroDivisionError),
        (Worn(77), None, ZeroDivisionError),
    ],
)
async def test_a_call_that_fails_while_it_begins_ends_with_what_was_raised(
    seconds: float, store: MemoryStore | None, error: type[Exception]
):
    async def top(ctx: RunContext) -> str:
        node = ctx.start(CallRequest(double, {"n": 1}, seconds))
        with pytest.raises(error):
            await node
        return node.state

    function = CodeFunction(callable=top, uses=[double])
    async with asyncio.timeout(PATIENCE), Runtime(store=store) as runtime:
        assert await runtime.invoke(function) == NodeState.Error
        assert await runtime.invoke(double, {"n": 1}) == 2  # the runtime goes on


class Proxy:
    """An object whose class cannot be asked for, as that of a proxy for something that is gone."""

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise LookupError("it is gone")


async def test_a_call_whose_result_cannot_be_written_ends_with_what_was_raised():
    async def child(ctx: RunContext) -> Any:
        return Proxy()

    async def top(ctx: RunContext) -> str:
        with pytest.raises(LookupError, match="it is gone"):
            await ctx.invoke(inner)
        return "caught"

    inner = CodeFunction(callable=child)
    function, store = CodeFunction(callable=top, uses=[inner]), MemoryStore()
    async with asyncio.timeout(PATIENCE), Runtime([function], store=store) as runtime:
        node = runtime.invoke(function)
        assert await node == "caught"
    async with asyncio.timeout(PATIENCE), Runtime([function], store=store) as runtime:
        (below,) = runtime.get_view(node.id).children
        assert below.state is NodeState.Error


async def test_a_call_that_cannot_say_which_calls_it_left_behind_ends_with_what_was_raised():
    class SmallStore(MemoryStore):
        largest = 1000  # bytes

    lives, store = list[int](), SmallStore()

    async def top(ctx: RunContext) -> None:
        lives.append(1)
        if len(lives) == 1:
            for node in [ctx.invoke(named) for _ in range(40)]:
                await node

    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Is it time?")

    named = CodeFunction(name="a_function_with_a_long_name", callable=ask, repeatable=True)
    function = CodeFunction(callable=top, uses=[named], repeatable=True)
    async with asyncio.timeout(PATIENCE), Runtime([function], store=store) as runtime:
        runtime.invoke(function)
        while len(runtime.questions()) < 40:  # noqa: ASYNC110 - nobody tells of the last
            await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE), Runtime([function], store=store) as runtime:
        (node,) = runtime.recover()
        runtime.answer(runtime.questions()[0].id, "yes")
        with pytest.raises(TooLargeError, match="NoticeGiven"):
            await node
        states = [view.state for view in runtime.get_view(node.id).children]
        assert NodeState.Canceled in states
        assert all(state.final for state in states)
