"""Waits until a tree has something new, in a thread or on an event loop."""

import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

T = TypeVar("T")


class ChangeSource(Protocol):
    """What can be waited for: a Tree, the changes of a journal, or a Poll of one."""

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, when something may have happened."""
        ...

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        ...


class Changes:
    """Callbacks that wait for a change; usable in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], None]] = []

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, at the next change."""
        with self._lock:
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(wake)

    def wake(self) -> None:
        """Call all callbacks: something has changed."""
        # Read without the lock: a waiter looks for a change once more after it was added.
        if self._waiting:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()


class BlockingWait(Protocol):
    """How a thread blocks until it is woken: a LoopHandle, or a Poll."""

    def refuse_blocking(self, what: str, instead: str) -> None:
        """Raise BlockingCallError in a thread where blocking would be a deadlock."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block this thread until *event* is set; return False after *timeout*."""
        ...


def wait_for(
    find: Callable[[], T | None],
    source: ChangeSource,
    blocking: BlockingWait,
    *,
    node: int,
    timeout: float | None,
    what: str,
    instead: str,
) -> T:
    """Block until *find* returns something about *node*.

    *what* waits, and *instead* is what to write on an event loop, both for messages.

    Raises:
        TimeoutError: it did not within *timeout* seconds.
        BlockingCallError: this thread runs the loop that has to do the work.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    woken = threading.Event()
    while (found := find()) is None:
        source.on_next_event(woken.set)
        try:
            # It may have happened before the callback was added.
            if (found := find()) is not None:
                return found
            blocking.refuse_blocking(what, instead)
            left = None if deadline is None else deadline - time.monotonic()
            if not blocking.wait(woken, left):
                raise _nothing_happened(node, timeout)
        finally:
            source.forget(woken.set)
        woken.clear()
    return found


async def await_next(
    find: Callable[[], Awaitable[T | None]],
    source: ChangeSource,
    *,
    node: int,
    seconds: float | None,
) -> T:
    """Wait until *find* returns something about *node*.

    Raises:
        TimeoutError: it did not within that many *seconds*.
    """
    import asyncio  # noqa: PLC0415 - slow, and commands that read one view do not need it

    from treefold.runtime.loops.loop_handle import threadsafe_resolver  # noqa: PLC0415 - imports asyncio

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            while (found := await find()) is None:
                changed = loop.create_future()
                wake = threadsafe_resolver(changed)
                source.on_next_event(wake)
                try:
                    # It may have happened before the callback was added.
                    if (found := await find()) is not None:
                        return found
                    await changed
                finally:
                    source.forget(wake)
    except TimeoutError:
        raise _nothing_happened(node, seconds) from None
    return found


def _nothing_happened(node: int, seconds: float | None) -> TimeoutError:
    return TimeoutError(f"nothing happened to node:{node} in {seconds} s")
