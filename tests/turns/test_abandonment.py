"""A run that its consumer walks away from leaves nothing behind.

Each way of walking away is tried on ``turn.yielding()`` and on ``agent.run()``, with a tool that
has a lock and a child, after each of the first values.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from treefold import Agent, RunContext, StopReason, ToolHook, Turn, TurnHook, hook, tool
from treefold.core.errors import SafeExecutionError

Consume = Callable[[AsyncGenerator[Any, None], int], Awaitable[None]]


class Job:
    """A locked stream, the turn and the agent that run it, and what happened to them."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.others = asyncio.all_tasks()
        self.log: list[str] = []
        log = self.log

        @tool
        async def background() -> None:
            await asyncio.Event().wait()

        @tool(lock=True, uses=[background])
        async def count(ctx: RunContext, stop: int | None = None) -> AsyncIterator[int]:
            inner = ctx.invoke(background)
            try:
                n = 0
                while stop is None or n < stop:
                    yield n
                    n += 1
                    if stuck and stop is None:
                        await asyncio.Event().wait()
            finally:
                inner.cancel("count has ended")
                log.append("closed")

        self.tool = count
        self.turn = Turn(count)
        self.agent = Agent("counter", "Counts", [count])

    async def check_that_nothing_is_left(self) -> None:
        for _ in range(10):  # the loop closes what was dropped in a task of its own
            await asyncio.sleep(0)
        assert asyncio.all_tasks() <= self.others
        assert self.turn.stop_reason is StopReason.CANCELLED
        assert self.turn.end_time is not None
        assert self.log == ["closed"]
        assert self.tool.lock is not None
        assert not self.tool.lock.locked()
        self.turn.timeout = 5  # it can be changed, so it is not running
        assert [value async for value in Turn(self.tool, kwargs={"stop": 2}).yielding()] == [0, 1]


async def break_out(stream: AsyncGenerator[Any, None], after: int) -> None:
    seen = 0
    async for _ in stream:
        seen += 1
        if seen == after:
            break


async def raise_in_consumer(stream: AsyncGenerator[Any, None], after: int) -> None:
    async def consume(stream: AsyncGenerator[Any, None]) -> None:
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == after:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consume(stream)


async def close(stream: AsyncGenerator[Any, None], after: int) -> None:
    for _ in range(after):
        await anext(stream)
    await stream.aclose()


async def throw_in(stream: AsyncGenerator[Any, None], after: int) -> None:
    for _ in range(after):
        await anext(stream)
    with pytest.raises(KeyboardInterrupt):
        await stream.athrow(KeyboardInterrupt)


async def be_cancelled(stream: AsyncGenerator[Any, None], after: int) -> None:
    reached = asyncio.Event()

    async def consume() -> None:
        for _ in range(after):
            await anext(stream)
        reached.set()
        async for _ in stream:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(consume())
        await reached.wait()
        await asyncio.sleep(0)
        task.cancel()
    del task


async def collect_in_a_cycle(stream: AsyncGenerator[Any, None], after: int) -> None:
    for _ in range(after):
        await anext(stream)
    cycle: list[Any] = [stream]
    cycle.append(cycle)


WAYS: list[Consume] = [
    break_out, raise_in_consumer, close, throw_in, be_cancelled, collect_in_a_cycle,
]  # fmt: skip


@pytest.mark.parametrize(("stuck", "after"), [(False, 1), (False, 2), (False, 3), (True, 1)])
@pytest.mark.parametrize("consume", WAYS)
async def test_a_turn_that_is_walked_away_from_leaves_nothing(
    consume: Consume,
    stuck: bool,  # noqa: FBT001
    after: int,
):
    job = Job(stuck=stuck)
    async with asyncio.timeout(60):
        await consume(job.turn.yielding(), after)
        gc.collect()
        await job.check_that_nothing_is_left()


@pytest.mark.parametrize(("stuck", "after"), [(False, 1), (False, 2), (False, 3), (True, 1)])
@pytest.mark.parametrize("consume", WAYS)
async def test_an_agent_that_is_walked_away_from_leaves_nothing(
    consume: Consume,
    stuck: bool,  # noqa: FBT001
    after: int,
):
    job = Job(stuck=stuck)
    await job.agent.put(job.turn)
    async with asyncio.timeout(60):
        await consume(job.agent.run(), after)
        gc.collect()
        await job.check_that_nothing_is_left()
    assert job.agent.turns == [job.turn]  # it did not complete, so it is not lost
    job.agent.remove(job.turn)
    assert [value async for value in job.agent.run()] == []  # and the agent is not running


async def test_a_stream_that_was_never_begun_leaves_nothing():
    job = Job()
    await job.turn.yielding().aclose()
    stream = job.turn.yielding()
    del stream
    assert job.turn.start_time is None
    assert job.log == []


async def test_after_a_break_the_turn_can_be_run_again_at_once():
    job = Job()
    async with asyncio.timeout(60):
        for _ in range(3):
            async for _ in job.turn.yielding():
                break
            job.turn.kwargs["stop"] = 2
            assert [n async for n in job.turn.yielding()] == [0, 1]
            del job.turn.kwargs["stop"]


async def test_after_a_break_the_agent_can_be_run_again_at_once():
    job = Job()
    await job.agent.put(job.turn)
    async with asyncio.timeout(60):
        async for _ in job.agent.run():
            break
        async for _, value in job.agent.run():  # the turn stayed first and begins anew
            assert value == 0
            break


async def test_a_stream_that_is_still_held_refuses_a_second_run():
    job = Job()
    stream = job.turn.yielding()
    await anext(stream)
    with pytest.raises(SafeExecutionError, match="is running already"):
        await anext(job.turn.yielding())
    await stream.aclose()


@pytest.mark.parametrize("through_agent", [False, True])
async def test_cancelling_the_task_that_awaits_a_single_value_ends_the_tool(through_agent: bool):  # noqa: FBT001
    others = asyncio.all_tasks()
    started = asyncio.Event()
    ended: list[str] = []

    @tool(lock=True)
    async def wait(ctx: RunContext) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up takes a while, and is waited for
            ended.append("tool")

    turn = Turn(wait)
    agent = Agent("waiter", "Waits", [wait])
    await agent.put(turn)

    async def consume() -> None:
        if through_agent:
            async for _ in agent.run():
                pass
        else:
            await turn.returning()

    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(consume())
            await started.wait()
            task.cancel()
        assert ended == ["tool"]
        assert task.cancelled()
    assert turn.stop_reason is StopReason.CANCELLED
    assert agent.turns == [turn]
    assert wait.lock is not None
    assert not wait.lock.locked()
    assert asyncio.all_tasks() == others


async def test_a_timeout_of_the_consumer_counts_as_a_cancel():
    @tool
    async def wait() -> None:
        await asyncio.Event().wait()

    turn = Turn(wait)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await turn.returning()
    assert turn.stop_reason is StopReason.CANCELLED


async def test_the_hooks_hear_of_a_run_that_was_walked_away_from():
    heard: list[tuple[str, Any]] = []

    @hook(ToolHook.AFTER_INVOKE)
    async def tool_ended(result: Any) -> None:
        heard.append(("after_invoke", result))

    @hook(TurnHook.ON_COMPLETE)
    async def turn_ended(turn: Turn, stop_reason: StopReason) -> None:
        heard.append(("on_complete", stop_reason))

    job = Job()
    stream = job.turn.yielding()
    for _ in range(2):
        await anext(stream)
    await stream.aclose()
    assert heard == [("after_invoke", [0, 1]), ("on_complete", StopReason.CANCELLED)]


async def test_walking_away_from_a_streaming_tool_called_directly_frees_its_lock():
    heard: list[list[int]] = []

    @tool(lock=True)
    async def count() -> AsyncIterator[int]:
        for n in range(100):
            yield n

    @count.after_invoke
    async def keep(result: list[int]) -> None:
        heard.append(result)

    async with asyncio.timeout(60):
        async for n in count():
            if n == 2:
                break
        assert [n async for n in count()] == list(range(100))
    assert heard == [[0, 1, 2], list(range(100))]


@pytest.mark.parametrize("consume", WAYS)
async def test_walking_away_from_a_tool_called_directly_leaves_nothing(consume: Consume):
    others = asyncio.all_tasks()
    log: list[str] = []

    @tool(lock=True)
    async def count() -> AsyncGenerator[int, None]:
        try:
            for n in range(100):
                await asyncio.sleep(0)
                yield n
        finally:
            await asyncio.sleep(0)
            log.append("closed")

    async with asyncio.timeout(60):
        await consume(count(), 2)
        gc.collect()
        second = count()
        assert await anext(second) == 0  # waits for the lock, if it must
        assert log == ["closed"]
        await second.aclose()
    for _ in range(5):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == others


def test_streams_that_are_left_when_the_loop_ends_are_closed_without_complaint():
    """One is held, one is in a cycle; asyncio.run closes both, from the outside in."""
    complaints: list[dict[str, Any]] = []
    closed: list[str] = []
    held: list[Any] = []

    @tool
    async def count(name: str) -> AsyncGenerator[int, None]:
        try:
            for n in range(100):
                yield n
        finally:
            await asyncio.sleep(0)
            closed.append(name)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        agent = Agent("counter", "Counts", [count])
        await agent.put(Turn(count, kwargs={"name": "agent"}))
        streams = [
            count(name="direct"),
            Turn(count, kwargs={"name": "turn"}).yielding(),
            agent.run(),
        ]
        for stream in streams:
            await anext(stream)
        held.extend(streams)
        held.append(held)

    asyncio.run(main())
    assert complaints == []
    assert sorted(closed) == ["agent", "direct", "turn"]
