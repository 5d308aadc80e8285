"""The event loop of a runtime, reachable from any thread.

Everything that changes a tree happens on that one loop, so trees need no locks; other threads post
callbacks to it. The loop is the caller's, or one of our own in a background thread.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from typing import Any, TypeVar

from treefold.core.errors import BlockingCallError, ClosedError

T = TypeVar("T")

_LOOK_EVERY = 1.0  # seconds between two looks whether the loop somebody waits for is still there


class LoopHandle:
    """One loop, and how to reach it from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self.loop = loop
        self.patience = patience  # seconds until a call that was cancelled is cancelled again
        self._thread = threading.get_ident()
        self._process = os.getpid()

    def is_current(self) -> bool:
        """Whether the loop's work may be done right here: it runs in this thread, or not at all."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return not self.loop.is_running() and threading.get_ident() == self._thread

    def is_forked(self) -> bool:
        """Whether this is a forked process, which has a copy of the loop that nobody runs."""
        return self._process != os.getpid()

    def is_ending(self) -> bool:
        """Whether somebody, as ``asyncio.run`` at its end, has cancelled all tasks of the loop."""
        return all(task.cancelling() for task in asyncio.all_tasks(self.loop))

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Have *function* called on the loop, soon."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            raise ClosedError("the event loop of this runtime has been closed") from None

    def run_sync(self, function: Callable[..., T], *args: Any) -> T:
        """Call *function* on the loop and return what it returns, from any thread."""
        if self.is_current():
            return function(*args)
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits
                answer.set_exception(error)

        self.call_soon(work)
        while not wait([answer], timeout=_LOOK_EVERY).done:
            self._check_open()
        return answer.result()

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* as a task of the loop, and block this thread until it is done.

        Raises:
            BlockingCallError: this is the thread of the loop.
            ClosedError: it was cancelled, or the loop closed, before it was done.
        """
        try:
            self.refuse_blocking("waiting for a coroutine")
            answer = asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise
        try:
            while not wait([answer], timeout=_LOOK_EVERY).done:
                self._check_open()
        except BaseException:
            answer.cancel()
            raise
        try:
            return answer.result()
        except CancelledError:
            raise ClosedError("what this thread waited for was cancelled") from None

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call *function* on the loop: now if this is its thread, otherwise soon."""
        if self.is_current():
            function(*args)
        else:
            self.call_soon(function, *args)

    def refuse_blocking(self, what: str, instead: str = "write 'await' instead") -> None:
        """Raise BlockingCallError on the loop's own thread, where waiting would never end."""
        if self.is_current():
            raise BlockingCallError(
                f"{what} would block the event loop that has to do the work: {instead}, or call it"
                " from another thread"
            )

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block this thread until *event* is set on the loop; False if it took too long."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_EVERY if deadline is None else deadline - time.monotonic()
            if event.wait(max(0.0, min(left, _LOOK_EVERY))):
                return True
            if left <= 0:
                return False
            self._check_open()

    def _check_open(self) -> None:
        if self.loop.is_closed():
            raise ClosedError("the event loop of this runtime was closed before it could answer")


class BackgroundLoop(LoopHandle):
    """A loop of our own in a daemon thread."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._process = os.getpid()
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._stopping = asyncio.Event()
        self._runner = threading.Thread(
            target=asyncio.run, args=[self._main(started)], name="treefold runtime", daemon=True
        )
        self._runner.start()
        self.loop = started.result()
        assert self._runner.ident is not None  # it has started
        self._thread = self._runner.ident

    async def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()

    def stop(self) -> None:
        """End the loop and its thread."""
        with contextlib.suppress(ClosedError):
            self.call_soon(self._stopping.set)
        self._runner.join()


def settle(future: asyncio.Future[None]) -> None:
    """Let whoever awaits *future* go on."""
    if not future.done():
        future.set_result(None)


def threadsafe_resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    """Return a function that settles *future* on its own loop, from any thread."""
    loop = future.get_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                loop.call_soon(settle, future)  # after those that another thread has woken
                return
        with contextlib.suppress(RuntimeError):  # that loop has closed, and nobody awaits any more
            loop.call_soon_threadsafe(settle, future)

    return wake
