"""The lock of tools and hooks: fair, across loops, and never lost."""

import asyncio
import contextlib
import random
import threading

import pytest

from treefold.turns.lock import CrossLoopLock


async def test_those_who_wait_get_it_in_order():
    lock, order = CrossLoopLock(), list[int]()

    async def work(n: int) -> None:
        async with lock:
            order.append(n)
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(work(n))
    assert order == [0, 1, 2, 3, 4]
    assert not lock.locked()


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_waiter_that_is_cancelled_passes_it_on(turns: int):
    lock = CrossLoopLock()
    await lock.acquire()

    async def work() -> None:
        async with lock:
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        first, second = group.create_task(work()), group.create_task(work())
        await asyncio.sleep(0)
        lock.release()  # to the first, who is cancelled before or after he hears of it
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
    assert second.done()
    assert not lock.locked()


async def test_a_waiter_on_a_loop_that_is_gone_is_passed_over():
    lock = CrossLoopLock()
    await lock.acquire()
    loop = asyncio.new_event_loop()

    def leave_waiting() -> None:
        task = loop.create_task(lock.acquire())
        loop.run_until_complete(asyncio.sleep(0))
        assert not task.done()
        loop.close()
        task._log_destroy_pending = False  # pyright: ignore - it is meant to be left

    await asyncio.to_thread(leave_waiting)
    lock.release()
    assert not lock.locked()
    with pytest.raises(RuntimeError, match="the lock is not held"):
        lock.release()


def test_it_excludes_across_loops_and_threads_under_cancels():
    lock, inside, most, done = CrossLoopLock(), 0, 0, 0

    async def work(rng: random.Random) -> None:
        nonlocal inside, most, done
        for _ in range(30):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rng.choice([0, 0.0005, 10])), lock:
                    inside += 1
                    most = max(most, inside)
                    try:
                        await asyncio.sleep(0)
                    finally:
                        inside -= 1
                    done += 1

    async def main(seed: int) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(4):
                group.create_task(work(random.Random(seed * 10 + n)))

    threads = [threading.Thread(target=lambda s=seed: asyncio.run(main(s))) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1
    assert done > 100
    assert not lock.locked()
