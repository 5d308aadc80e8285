"""Timers of a loop that are started for each call, and nearly always stopped."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from treefold.runtime.loops.timers import LoopTimers


@pytest.fixture
async def timers() -> LoopTimers:
    return LoopTimers(asyncio.get_running_loop())


async def ended(told: list[int], count: int) -> list[int]:
    async with asyncio.timeout(60):
        while len(told) < count:  # noqa: ASYNC110 - nothing tells that a timer has ended
            await asyncio.sleep(0.001)
    return told


async def test_timers_of_one_length_end_in_the_order_of_their_start(timers: LoopTimers):
    told: list[int] = []
    for number in range(5):
        timers.call_later(0.01, told.append, number)

    assert await ended(told, 5) == [0, 1, 2, 3, 4]


async def test_a_stopped_timer_does_not_end(timers: LoopTimers):
    told: list[int] = []
    started = [timers.call_later(0.01, told.append, number) for number in range(5)]
    for number in (0, 2, 4):
        started[number].cancel()
        started[number].cancel()

    assert await ended(told, 2) == [1, 3]
    started[1].cancel()  # it has ended
    timers.call_later(0.01, told.append, 5)
    assert await ended(told, 3) == [1, 3, 5]


async def test_timers_of_many_lengths_each_end_at_their_time(timers: LoopTimers):
    told: list[int] = []
    for number in reversed(range(20)):
        timers.call_later(0.005 * number, told.append, number)

    assert await ended(told, 20) == list(range(20))


async def test_a_timer_that_fails_does_not_keep_the_others_from_ending(timers: LoopTimers):
    told: list[int] = []
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def fail() -> None:
        raise ValueError("no")

    timers.call_later(0.01, fail)
    timers.call_later(0.01, told.append, 1)

    assert await ended(told, 1) == [1]
    assert reported == ["no"]


async def test_a_timer_may_start_and_stop_others_when_it_ends(timers: LoopTimers):
    told: list[int] = []

    def first() -> None:
        second.cancel()
        timers.call_later(0.01, told.append, 3)

    timers.call_later(0.01, first)
    second = timers.call_later(0.01, told.append, 2)

    assert await ended(told, 1) == [3]


class Argument:
    """Something that can be referred to weakly."""


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def test_stopped_timers_keep_nothing(timers: LoopTimers, no_collection: None):
    """Neither behind one that runs long, nor many of them."""
    first = timers.call_later(60, print)
    arguments: list[weakref.ref[Argument]] = []
    handles: list[weakref.ref[object]] = []
    for _ in range(1000):
        argument = Argument()
        timer = timers.call_later(60, print, argument)
        arguments.append(weakref.ref(argument))
        handles.append(weakref.ref(timer))
        timer.cancel()
        del argument, timer

    assert [one for one in arguments if one() is not None] == []
    assert len([one for one in handles if one() is not None]) <= 101
    first.cancel()
    assert [one for one in handles if one() is not None] == []
