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

from treefold.core.errors import BlockingCallError, ClosedError, UsageError
from treefold.runtime.loops.timers import LoopTimers

T = TypeVar("T")

_POLL_INTERVAL = 1.0  # seconds between checks that the loop a thread waits for is still open


class _Process:
    """This process, which is looked up in each call; asking the system for its id takes longer."""

    id = os.getpid()

    @classmethod
    def note_fork(cls) -> None:
        """Note that this is a forked process."""
        cls.id = os.getpid()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_Process.note_fork)


class LoopHandle:
    """An event loop, with methods to run code on it from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float) -> None:
        self.loop = loop
        self.patience = patience  # seconds after which a cancelled call is cancelled again
        self.call_later = LoopTimers(loop).call_later  # to be used on the loop itself
        self._thread = threading.get_ident()
        self._process = _Process.id

    def is_current(self) -> bool:
        """Whether code of the loop may run here: the loop runs in this thread, or not at all."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return not self.loop.is_running() and threading.get_ident() == self._thread

    def is_forked(self) -> bool:
        """Whether this is a forked process, where the copy of the loop does not run."""
        return self._process != _Process.id

    def check_process(self) -> None:
        """Raise UsageError in a forked process, where a wait for the loop would not end."""
        if self.is_forked():
            raise UsageError(
                "this process was forked after its Runtime had started, in process"
                f" {self._process}, which alone runs its calls: make a Runtime in each process,"
                " after it was forked"
            )

    def is_ending(self) -> bool:
        """Whether all tasks of the loop are being cancelled, as by ``asyncio.run`` at its end."""
        return all(task.cancelling() for task in asyncio.all_tasks(self.loop))

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule *function* on the loop, from any thread."""
        self.check_process()
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            raise ClosedError("the event loop of this runtime has been closed") from None

    def run_sync(self, function: Callable[..., T], *args: Any) -> T:
        """Call *function* on the loop and return its result, from any thread."""
        if self.is_current():
            return function(*args)
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                answer.set_exception(error)

        self.call_soon(work)
        while not wait([answer], timeout=_POLL_INTERVAL).done:
            self._check_open()
        return answer.result()

    def run_coroutine(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* as a task of the loop, and block this thread until it is done.

        Raises:
            BlockingCallError: this is the thread of the loop.
            ClosedError: the task was cancelled, or the loop closed, before it was done.
        """
        try:
            self.check_process()
            self.refuse_blocking("waiting for a coroutine")
            answer = asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise
        try:
            while not wait([answer], timeout=_POLL_INTERVAL).done:
                self._check_open()
        except BaseException:
            answer.cancel()
            raise
        try:
            return answer.result()
        except CancelledError:
            raise ClosedError("what this thread waited for was cancelled") from None

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call *function* at once if this is the loop's thread, otherwise schedule it there."""
        if self.is_current():
            function(*args)
        else:
            self.call_soon(function, *args)

    def refuse_blocking(self, what: str, instead: str = "write 'await' instead") -> None:
        """Raise BlockingCallError on the loop's own thread, where blocking would be a deadlock."""
        if self.is_current():
            raise BlockingCallError(
                f"{what} would block the event loop that has to do the work: {instead}, or call it"
                " from another thread"
            )

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block this thread until *event* is set on the loop; return False after *timeout*."""
        self.check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _POLL_INTERVAL if deadline is None else deadline - time.monotonic()
            if event.wait(max(0.0, min(left, _POLL_INTERVAL))):
                return True
            if left <= 0:
                return False
            self._check_open()

    def _check_open(self) -> None:
        if self.loop.is_closed():
            raise ClosedError("the event loop of this runtime was closed before it could answer")


class BackgroundLoop(LoopHandle):
    """An event loop that the runtime runs itself, in a daemon thread."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._process = _Process.id
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._stopping = asyncio.Event()
        self._runner = threading.Thread(
            target=asyncio.run, args=[self._main(started)], name="treefold runtime", daemon=True
        )
        self._runner.start()
        self.loop = started.result()
        self.call_later = LoopTimers(self.loop).call_later
        assert self._runner.ident is not None  # it has started
        self._thread = self._runner.ident

    async def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()

    def stop(self) -> None:
        """Stop the loop, and wait for its thread to end."""
        with contextlib.suppress(ClosedError):
            self.call_soon(self._stopping.set)
        self._runner.join()


def settle(future: asyncio.Future[None]) -> None:
    """Set the result of *future*, unless it is done."""
    if not future.done():
        future.set_result(None)


def threadsafe_resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    """Return a function that settles *future* on its own loop, from any thread."""
    loop = future.get_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is loop:
                # Not at once, so that waiters woken by another thread before are still first.
                loop.call_soon(settle, future)
                return
        # If that loop has closed, there are no waiters any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, future)

    return wake
