"""Runs synchronous code in threads, off the loop."""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from treefold.runtime.loops.cancellation import wait_until
from treefold.runtime.loops.loop_handle import threadsafe_resolver

T = TypeVar("T")
Q = ParamSpec("Q")


async def finish_in_thread(function: Callable[[], None]) -> None:
    """Run *function* to its end in a thread; a cancellation meanwhile is raised after that.

    If no thread can be started, it runs on the loop.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wake = threadsafe_resolver(done)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised where this is awaited
            errors.append(error)
        finally:
            wake()

    try:
        _start(work)
    except RuntimeError:
        work()
    try:
        await wait_until(done.done, lambda: asyncio.shield(done))
    finally:
        if errors:
            raise errors[0]


async def in_thread(function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
    """Run *function* in a thread of its own, with the caller's context variables.

    Each call has a thread to itself, because synchronous functions that wait for each other would
    exhaust any pool of a fixed size. Threads are daemons: Python cannot stop one, so the thread of
    a cancelled call runs to its end, and it must not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(conclude: Callable[[Any], None], outcome: Any) -> None:
        if not done.done():
            conclude(outcome)

    def post(conclude: Callable[[Any], None], outcome: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed, and nothing awaits this
            loop.call_soon_threadsafe(settle, conclude, outcome)

    def work() -> None:
        try:
            value = context.run(function, *args, **kwargs)
        except StopIteration:  # a future does not accept it
            post(done.set_exception, RuntimeError("a function in a thread raised StopIteration"))
        except BaseException as error:  # noqa: BLE001 - raised where this is awaited
            post(done.set_exception, error)
        else:
            post(done.set_result, value)

    _start(work)
    return await done


# Starting a thread takes longer than most functions that run in one, so a thread that has nothing
# to do waits a moment for the next function.

_PATIENCE: Final = 1.0  # seconds
_idle: Final[list[SimpleQueue[Callable[[], None]]]] = []  # of each thread that waits
# A forked process has none of them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def _start(work: Callable[[], None]) -> None:
    """Call *work* in a thread that does nothing else meanwhile.

    Raises:
        RuntimeError: no thread can be started.
    """
    try:
        given = _idle.pop()
    except IndexError:
        given = SimpleQueue[Callable[[], None]]()
        threading.Thread(target=_work, args=(given,), name="treefold worker", daemon=True).start()
    given.put(work)


def _work(given: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        try:
            work = given.get(timeout=_PATIENCE)
        except Empty:
            try:
                _idle.remove(given)
            except ValueError:
                continue  # it is about to be given work
            return
        work()
        # What the function refers to is not kept alive by a thread that waits.
        del work
        _idle.append(given)
