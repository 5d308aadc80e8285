"""Waits until a tree has something new, in a thread or on an event loop."""

import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from treefold.core.errors import FencedError, StoreDamagedError, StoreError

T = TypeVar("T")

_PATIENCE: Final = 30.0  # seconds; a server that is restarted, or replaced, is back by then
_RETRY: Final = 1.0  # seconds


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
        StoreError: the journal could not be read for long.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    woken, patience = threading.Event(), _Patience()

    def block(seconds: float | None = None) -> bool:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise _nothing_happened(node, timeout)
        limits = [one for one in (left, seconds) if one is not None]
        return blocking.wait(woken, min(limits, default=None))

    while True:
        try:
            if (found := find()) is not None:
                return found
            source.on_next_event(woken.set)
            try:
                # It may have happened before the callback was added.
                if (found := find()) is not None:
                    return found
                patience.note_success()
                blocking.refuse_blocking(what, instead)
                if not block():
                    raise _nothing_happened(node, timeout)
            finally:
                source.forget(woken.set)
        except StoreError as error:
            patience.note_failure(error)
            blocking.refuse_blocking(what, instead)
            block(_RETRY)
        woken.clear()


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
        StoreError: the journal could not be read for long.
    """
    import asyncio  # noqa: PLC0415 - slow, and commands that read one view do not need it

    from treefold.runtime.loops.loop_handle import threadsafe_resolver  # noqa: PLC0415 - imports asyncio

    loop, patience = asyncio.get_running_loop(), _Patience()
    try:
        async with asyncio.timeout(seconds):
            while True:
                changed = loop.create_future()
                wake = threadsafe_resolver(changed)
                try:
                    if (found := await find()) is not None:
                        return found
                    source.on_next_event(wake)
                    try:
                        # It may have happened before the callback was added.
                        if (found := await find()) is not None:
                            return found
                        patience.note_success()
                        await changed
                    finally:
                        source.forget(wake)
                except StoreError as error:
                    patience.note_failure(error)
                    await asyncio.sleep(_RETRY)
    except TimeoutError:
        raise _nothing_happened(node, seconds) from None


class _Patience:
    """Reads again what could not be read, for a while: the server may be about to come back."""

    def __init__(self) -> None:
        self._failing_since: float | None = None

    def note_success(self) -> None:
        """Note that it could be read."""
        self._failing_since = None

    def note_failure(self, error: StoreError) -> None:
        """Raise *error* unless it may be read soon."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        is_final = isinstance(error, StoreDamagedError | FencedError)
        if is_final or now - self._failing_since >= _PATIENCE:
            raise error


def _nothing_happened(node: int, seconds: float | None) -> TimeoutError:
    return TimeoutError(f"nothing happened to node:{node} in {seconds} s")
