"""Functions that run in threads beside the event loop."""

import asyncio
import threading
from weakref import finalize

from treefold.runtime.loops.threads import in_thread

MANY = 50


async def test_threads_are_used_again():
    found = {await in_thread(threading.get_ident) for _ in range(MANY)}
    # A thread that has just answered may not be ready for the next function yet.
    assert len(found) < MANY / 2


async def test_functions_that_wait_for_each_other_have_a_thread_each():
    meeting = threading.Barrier(MANY)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(MANY):
            group.create_task(in_thread(meeting.wait))


async def test_a_thread_that_waits_keeps_nothing_of_the_last_function_alive():
    class Thing:
        def use(self) -> None:
            pass

    thing = Thing()
    gone = threading.Event()
    finalize(thing, gone.set)
    await in_thread(thing.use)
    del thing
    assert await asyncio.to_thread(gone.wait, 60)
