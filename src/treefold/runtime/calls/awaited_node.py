"""``AwaitedNode``: a call that is waited for, on any loop or thread."""

import asyncio
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from treefold.core.address import address
from treefold.core.errors import ClosedError, UsageError
from treefold.core.function import RunContext
from treefold.runtime.calls.recorded_node import RecordedNode
from treefold.runtime.calls.stage import ENDED, Stage
from treefold.runtime.loops.loop_handle import LoopHandle, settle, threadsafe_resolver
from treefold.runtime.trees.tree import Tree

log = logging.getLogger(__name__)

Wake = Callable[[], object]


class AwaitedNode(RecordedNode):
    """The part of a node that others wait for; ``CallNode`` sets the fields."""

    __slots__ = ()

    stage: Stage
    loop_handle: LoopHandle
    tree: Tree
    context: RunContext | None
    asked_for: bool
    _traceback: TracebackType | None  # of its exception
    # A dict keeps the order and makes removal cheap. The value is True for a caller.
    _waiters: dict[Wake, bool]

    @property
    @abstractmethod
    def parent(self) -> "AwaitedNode | None": ...

    @property
    def has_ended(self) -> bool:
        """Whether its outcome can be seen, and its waiters have been woken."""
        return self.stage is ENDED

    @abstractmethod
    def abandon(self, reason: str = ...) -> None:
        """Cancel the call because its caller does not wait for it any more."""

    def result(self, timeout: float | None = None) -> Any:
        self.asked_for = True
        if self.stage is not ENDED:
            caller, is_caller = self._begin_wait()
            is_over = False
            try:
                self.loop_handle.refuse_blocking(f"result() of {self.function.name!r}")
                mark = partial(self._mark_waiting, caller)
                is_over = self._block(timeout, mark, is_caller=is_caller)
            finally:
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
            if not is_over:
                raise TimeoutError(
                    f"{self.function.name} ({address(self.path)}) has not ended in {timeout} s;"
                    " it still runs: wait again, or cancel it"
                )
        if self.exception is None:
            return self.outputs
        raise self.exception.with_traceback(self._traceback)

    def __await__(self) -> Generator[Any, None, Any]:
        self.asked_for = True
        if self.stage is not ENDED:
            caller, is_caller = self._begin_wait()
            if caller is not None:
                caller.waiting_on = self
            try:
                yield from self._wait(is_caller=is_caller)
            finally:
                if caller is not None and caller.waiting_on is self:
                    caller.waiting_on = None
        if self.exception is None:
            ended = self.record.ended
            return None if ended is None else ended.outputs
        raise self.exception.with_traceback(self._traceback)

    def _begin_wait(self) -> "tuple[AwaitedNode | None, bool]":
        """Return the parent if the code that waits here belongs to it, and whether it is a caller.

        A caller is the code that made this call, which is of no use to others: its parent, or for a
        top-level call all code outside any call.
        """
        asking, parent = RunContext.active.get(None), self.parent
        if asking is not None:
            if asking is self.context:
                name = f"{self.function.name} ({address(self.path)})"
                raise UsageError(f"{name} cannot wait for itself")
            if parent is not None and asking is parent.context:
                return parent, True
            # This call may need a lease, so the call that waits here gives its own up.
            asking.give_up_lease()
        # A call in a journal outlives its waiters: Ctrl-C cancels the task that awaits it, too, and
        # the next process resumes the call.
        if parent is not None or self.tree.journal is not None:
            return None, False
        return None, asking is None or asking is asking.runtime.get_ctx()

    def _mark_waiting(self, caller: "AwaitedNode | None") -> None:
        if caller is not None:
            caller.waiting_on = self

    def _block(
        self, timeout: float | None, on_added: Callable[[], None], *, is_caller: bool
    ) -> bool:
        """Block this thread until the call has ended; return False after *timeout*.

        *on_added* is called once the loop is going to know of the one who waits.
        """
        ended, is_over = threading.Event(), False
        add = self._add_caller if is_caller else self.add_end_callback
        self.loop_handle.run_soon(add, ended.set)
        on_added()
        try:
            is_over = self.loop_handle.wait(ended, timeout)
        finally:
            if not is_over:
                with suppress(ClosedError):
                    self.loop_handle.run_soon(self.remove_end_callback, ended.set)
        return is_over

    def _wait(self, *, is_caller: bool) -> Generator[Any, None, None]:
        """Wait on the running loop until the call has ended."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        add = self._add_caller if is_caller else self.add_end_callback
        if loop is self.loop_handle.loop:
            wake = partial(settle, ended)
            add(wake)
        else:
            wake = threadsafe_resolver(ended)
            self.loop_handle.run_soon(add, wake)
        try:
            yield from ended
        except asyncio.CancelledError:
            with suppress(ClosedError):
                self.loop_handle.run_soon(self._leave, wake)
            raise

    # On the runtime's own loop

    async def ended(self) -> None:
        """Wait until the call has ended, with whatever outcome."""
        if self.stage is not ENDED:
            ended = self.loop_handle.loop.create_future()
            self.add_end_callback(partial(settle, ended))
            await ended

    def add_end_callback(self, wake: Wake) -> None:
        """Call *wake* on the loop when the call ends, or at once if it has ended."""
        if self.stage is ENDED:
            wake()
        else:
            self._waiters[wake] = False

    def _add_caller(self, wake: Wake) -> None:
        if self.stage is ENDED:
            wake()
        else:
            self._waiters[wake] = True

    def when_answering(self, wake: Callable[[], None]) -> None:
        """Call *wake* on the loop when its model has begun to answer, or when the call ends."""
        self.add_end_callback(wake)

    def remove_end_callback(self, wake: Wake) -> None:
        """Remove a callback added with ``add_end_callback``."""
        self._waiters.pop(wake, None)

    def _leave(self, wake: Wake) -> None:
        """Remove a waiter that was cancelled; abandon the call if it was the last caller."""
        if self._waiters.pop(wake, False) and not any(self._waiters.values()):
            self.abandon()

    def wake(self) -> None:
        """Wake the waiters of a call that has ended, each once, even if Ctrl-C comes meanwhile."""
        for wake in tuple(self._waiters):
            try:
                wake()
            except Exception:
                log.exception("a callback of the end of %s failed", self)
            self._waiters.pop(wake, None)
