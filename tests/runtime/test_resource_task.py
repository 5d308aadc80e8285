"""What one task holds open can be used from everywhere, and is left by that task alone."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from support import settle
from treefold.core.errors import ClosedError
from treefold.runtime.loops.resource_task import ResourceTask


class Resource:
    """Has an anyio task group, which minds very much which task leaves it."""

    def __init__(self) -> None:
        self.entered_by: object = None
        self.left_by: object = None
        self.group: Any = None
        self.is_held_up = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> "AsyncGenerator[Resource, None]":
        self.entered_by = asyncio.current_task()
        try:
            async with anyio.create_task_group() as self.group:
                self.group.start_soon(anyio.sleep_forever)
                yield self
                self.group.cancel_scope.cancel()
        finally:
            self.left_by = asyncio.current_task()

    async def echo(self, text: str) -> str:
        await asyncio.sleep(0)
        return text

    async def hang(self) -> None:
        await asyncio.Event().wait()


async def opened() -> tuple[ResourceTask[Resource], Resource]:
    resource = Resource()
    owner = ResourceTask(resource.open(), "the resource")
    async with asyncio.timeout(60):
        assert await owner.open() is resource
    return owner, resource


def in_another_loop(work: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
    async def main() -> Any:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.to_thread(lambda: asyncio.run(main()))


async def test_one_task_enters_and_leaves_whoever_closes():
    owner, resource = await opened()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(owner.aclose())
        group.create_task(owner.aclose())
    assert resource.left_by is resource.entered_by is not asyncio.current_task()
    assert owner.has_ended


async def test_calls_come_from_any_loop_and_are_made_on_the_owners():
    owner, _ = await opened()

    async def where(resource: Resource) -> tuple[str, int]:
        return await resource.echo("here"), threading.get_ident()

    expected = ("here", threading.get_ident())
    async with asyncio.timeout(60):
        assert await owner.call(where) == expected
        assert await in_another_loop(lambda: owner.call(where)) == expected
        await in_another_loop(owner.aclose)
    assert owner.has_ended


async def test_giving_up_a_call_cancels_it_and_nothing_else():
    owner, _ = await opened()
    cancelled = asyncio.Event()

    async def hang(resource: Resource) -> None:
        try:
            await resource.hang()
        finally:
            cancelled.set()

    for give_up in (
        lambda: owner.call(hang),
        lambda: in_another_loop(lambda: asyncio.wait_for(owner.call(hang), 0.05)),  # noqa: TID251
    ):
        cancelled.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await give_up()
        async with asyncio.timeout(60):
            await cancelled.wait()
            assert await owner.call(lambda resource: resource.echo("on")) == "on"
    await owner.aclose()


async def test_closing_fails_the_calls_under_way_and_those_that_follow():
    owner, _ = await opened()

    async def call() -> None:
        with pytest.raises(ClosedError, match="the resource was closed"):
            await owner.call(lambda resource: resource.hang())

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(call())
        await settle()
        await owner.aclose()
    with pytest.raises(ClosedError, match="the resource is not open"):
        await owner.call(lambda resource: resource.echo(""))


async def test_what_ends_by_itself_fails_the_calls_and_closes():
    owner, resource = await opened()

    async def fail() -> None:
        raise ConnectionError("gone")

    async with asyncio.timeout(60):
        resource.group.start_soon(fail)
        with pytest.raises(ClosedError):
            await owner.call(lambda resource: resource.hang())
        await owner.aclose()
    assert isinstance(owner.failure, ExceptionGroup)
    assert owner.failure.subgroup(ConnectionError)


async def test_what_cannot_be_opened_raises_why():
    @asynccontextmanager
    async def broken() -> AsyncGenerator[None, None]:
        raise ConnectionRefusedError("nobody there")
        yield

    owner = ResourceTask(broken(), "it")
    with pytest.raises(ConnectionRefusedError, match="nobody there"):
        await owner.open()
    assert owner.has_ended


async def test_giving_up_the_opening_leaves_nothing_behind():
    left = asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncGenerator[None, None]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            left.set()

    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await ResourceTask(slow(), "it").open()
    assert left.is_set()
    assert asyncio.all_tasks() == before


async def test_closing_goes_on_when_the_closer_is_cancelled():
    leaving, may_leave = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncGenerator[None, None]:
        yield
        leaving.set()
        await may_leave.wait()

    owner = ResourceTask(slow(), "it")
    await owner.open()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        closer = group.create_task(owner.aclose())
        await leaving.wait()
        closer.cancel()
        await settle()
        assert not closer.done()
        may_leave.set()
    assert closer.cancelled()
    assert owner.has_ended


def test_a_loop_that_ended_without_it_is_said_to_be_closed():
    async def leave_open() -> ResourceTask[Resource]:
        return (await opened())[0]

    owner = asyncio.run(leave_open())
    with pytest.raises(ClosedError):
        asyncio.run(owner.call(lambda resource: resource.echo("")))
    asyncio.run(owner.aclose())


def test_closing_what_nobody_has_opened_or_what_went_with_its_loop_does_not_wait():
    owner = ResourceTask(Resource().open(), "the resource")
    asyncio.run(owner.aclose())
    loop = asyncio.new_event_loop()
    owner, _ = loop.run_until_complete(opened())
    loop.close()  # with the task in it
    asyncio.run(owner.aclose())
