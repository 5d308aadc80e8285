"""Waiting for a call to end, from any thread or event loop."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from treefold.core.errors import ClosedError, UsageError
from treefold.core.events import StopCause
from treefold.core.function import Node, RunContext
from treefold.runtime.loops.loop_handle import LoopHandle, settle, threadsafe_resolver


class AwaitedNode(Node):
    """A node that can be awaited on any loop and in any thread.

    ``result`` and ``await`` may be used anywhere; the other methods run on the runtime's loop.
    """

    __slots__ = (
        "_ended",
        "_traceback",
        "_waiters",
        "asked_for",
        "context",
        "exception",
        "function",
        "loop_handle",
        "outputs",
        "waiting_on",
    )

    def __init__(self, loop_handle: LoopHandle) -> None:
        self.loop_handle = loop_handle
        self.context: RunContext | None = None
        self.outputs = None
        self.exception = None
        self.waiting_on = None
        self.asked_for = False  # whether its outcome has been asked for
        self._ended: float | None = None
        self._traceback: TracebackType | None = None
        # A dict keeps the order and makes removal cheap. The value is True for a caller: the call
        # is cancelled when the last waiting caller is cancelled.
        self._waiters: dict[Callable[[], object], bool] = {}

    @property
    def has_ended(self) -> bool:
        """Whether the call has ended and its waiters have been woken."""
        return self._ended is not None

    def result(self, timeout: float | None = None) -> Any:
        self.asked_for = True
        if self._ended is None:
            caller = self._caller()
            if caller is None:
                _release_lease_of_waiter()
            ended = threading.Event()
            self.loop_handle.refuse_blocking(f"result() of {self.function.name!r}")
            self._tell_when_ended(ended.set, caller)
            if caller is not None:
                caller.waiting_on = self
            is_over = False
            try:
                is_over = self.loop_handle.wait(ended, timeout)
            finally:
                if not is_over:
                    with suppress(ClosedError):
                        self.loop_handle.run_soon(self.remove_end_callback, ended.set)
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
            if not is_over:
                raise TimeoutError(
                    f"{self.function.name} (node {self.path}) has not ended in {timeout} s;"
                    " it still runs: wait again, or cancel it"
                )
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        self.asked_for = True
        if self._ended is None:
            caller = self._caller()
            if caller is None:
                _release_lease_of_waiter()
            loop = asyncio.get_running_loop()
            ended = loop.create_future()
            is_own_loop = loop is self.loop_handle.loop
            wake = partial(settle, ended) if is_own_loop else threadsafe_resolver(ended)
            self._tell_when_ended(wake, caller)
            if caller is not None:
                caller.waiting_on = self
            try:
                yield from ended
            except asyncio.CancelledError:
                with suppress(ClosedError):
                    self.loop_handle.run_soon(self._stop_waiting, wake)
                raise
            finally:
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
        return self._outcome()

    def _caller(self) -> "AwaitedNode | None":
        """Return the parent if the code that waits here belongs to it, otherwise None."""
        asking = RunContext.active.get(None)
        if asking is None:
            return None
        if asking is self.context:
            raise UsageError(f"{self.function.name} (node {self.path}) cannot wait for itself")
        parent = self.parent
        if isinstance(parent, AwaitedNode) and asking is parent.context:
            return parent
        return None

    def _tell_when_ended(self, wake: Callable[[], object], caller: "AwaitedNode | None") -> None:
        """Arrange from any thread that *wake* is called on the loop when the call ends."""
        is_caller = caller is not None or self._belongs_to_waiters
        self.loop_handle.run_soon(self._wake_caller if is_caller else self.add_end_callback, wake)

    @property
    def _belongs_to_waiters(self) -> bool:
        """Whether the code that waits here is outside any call and started this call itself."""
        return False

    def add_end_callback(self, wake: Callable[[], object]) -> None:
        """Call *wake* on the loop when the call ends, or at once if it has ended."""
        if self._ended is None:
            self._waiters[wake] = False
        else:
            wake()

    def _wake_caller(self, wake: Callable[[], object]) -> None:
        """Like ``add_end_callback``, for a caller: the call is abandoned when it stops waiting."""
        self.add_end_callback(wake)
        if self._ended is None:
            self._waiters[wake] = True

    def _stop_waiting(self, wake: Callable[[], object]) -> None:
        """Remove a waiter; cancel the call if it was a caller and no other caller waits."""
        was_caller = self._waiters.pop(wake, False)
        if was_caller and not any(self._waiters.values()):
            self.cancel_on_loop("its caller stopped waiting for it", cause=StopCause.Abandoned)

    async def ended(self) -> None:
        """Wait on the runtime's own loop until the call has ended, with whatever outcome."""
        if self._ended is None:
            ended = self.loop_handle.loop.create_future()
            self.add_end_callback(partial(settle, ended))
            await ended

    @abstractmethod
    def cancel_on_loop(
        self, reason: str, *, insist: bool = False, cause: StopCause = StopCause.Cancelled
    ) -> None:
        """Cancel the call and all below it; runs on the runtime's own loop."""

    def remove_end_callback(self, wake: Callable[[], object]) -> None:
        """Remove a callback added with ``add_end_callback``."""
        self._waiters.pop(wake, None)

    def _outcome(self) -> Any:
        if self.exception is None:
            return self.outputs
        raise self.exception.with_traceback(self._traceback)


def _release_lease_of_waiter() -> None:
    """Give up the lease of the call that waits here: the call it waits for may need one."""
    if (waiting := RunContext.active.get(None)) is not None:
        waiting.give_up_lease()
