"""Waiting for what must be finished, although the task that waits is cancelled."""

import asyncio

import pytest

from support import settle
from treefold.runtime.loops.cancellation import wait_until


async def test_a_cancellation_is_raised_when_the_wait_is_over():
    done = asyncio.get_running_loop().create_future()
    hurried: list[str] = []
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(  # noqa: TID251 - it is cancelled from outside
            wait_until(done.done, lambda: asyncio.shield(done), lambda: hurried.append("hurry"))
        )
        for message in ("first", "second"):
            await settle()
            waiting.cancel(message)
        await settle()
        assert not waiting.done()
        done.set_result(None)
        with pytest.raises(asyncio.CancelledError) as raised:
            await waiting
    assert hurried == ["hurry", "hurry"]
    assert raised.value.args == ("second",)


async def test_nothing_is_awaited_if_there_is_nothing_to_wait_for():
    async def forbidden() -> None:
        raise AssertionError

    await wait_until(lambda: True, forbidden)


async def test_a_failure_of_the_wait_is_raised_at_once():
    async def broken() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await wait_until(lambda: False, broken)
