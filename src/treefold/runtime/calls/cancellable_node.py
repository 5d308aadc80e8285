"""``CancellableNode``: a call that can be stopped, with all calls below it."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence

from treefold.core.events import StopCause
from treefold.core.states import NodeState
from treefold.runtime.calls.awaited_node import AwaitedNode
from treefold.runtime.calls.cancellation import Cancellation
from treefold.runtime.calls.outcome import Outcome
from treefold.runtime.calls.stage import ENDED, ENDING, JOINING, SCHEDULED

# Asks the process that runs the node with this id to cancel it, for a reason.
RemoteCancel = Callable[[int, str, StopCause], None]


class CancellableNode(AwaitedNode):
    """The part of a node that stops it; ``CallNode`` sets the fields."""

    __slots__ = ()

    task: asyncio.Task[None] | None
    remote_cancel: RemoteCancel | None  # of a call that another process runs
    _cancellation: Cancellation | None  # made when it is first cancelled

    @property
    @abstractmethod
    def parent(self) -> "CancellableNode | None": ...

    @property
    @abstractmethod
    def children(self) -> "Sequence[CancellableNode]": ...

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """End the call with *outcome*."""

    @abstractmethod
    def end_unrun(self) -> None:
        """End a call whose task does not: it has none, or one that has not begun."""

    def cancel(self, reason: str = "cancelled") -> None:
        if self.stage is not ENDED:
            # The reason is recorded, and callers often give an exception.
            self.loop_handle.run_soon(self._cancel_or_insist, str(reason))

    def _cancel_or_insist(self, reason: str) -> None:
        if self._cancellation is None or not self._cancellation.confirm(reason):
            self.cancel_on_loop(reason, insist=self.cancel_reason is not None)

    def abandon(self, reason: str = "its caller stopped waiting for it") -> None:
        """Cancel the call because its caller does not wait for it any more."""
        self.cancel_on_loop(reason, cause=StopCause.Abandoned)

    def fail_with(self, error: BaseException, reason: str, cause: StopCause) -> None:
        """Cancel the call for this *reason*; it fails with *error* unless it had an outcome."""
        if self.cancel_reason is None and self.stage < JOINING:
            self.cancellation.error = error
        self.cancel_on_loop(reason, cause=cause)

    @property
    def cancel_reason(self) -> str | None:
        """Why it is being cancelled, itself or with a call above it; None if it is not."""
        return None if self._cancellation is None else self._cancellation.reason

    @property
    def cancellation(self) -> Cancellation:
        """How it is being cancelled; made on first use."""
        if self._cancellation is None:
            self._cancellation = Cancellation()
        return self._cancellation

    def cancel_on_loop(
        self, reason: str, *, insist: bool = False, cause: StopCause = StopCause.Cancelled
    ) -> None:
        """Cancel every task of the subtree; runs on the runtime's own loop.

        Nodes that are being cancelled already, and all below them, are not cancelled again while
        they clean up, unless *insist*. A call that has not ended after ``patience`` seconds is
        cancelled again.
        """
        if self.stage is ENDED or (self.cancel_reason is not None and not insist):
            return
        if self.remote_cancel is not None:
            self._cancel_remotely(self.remote_cancel, reason, cause)
            return
        if self.cancel_reason is None:
            self.cancellation.cause = cause
        self._cancel_subtree(reason, insist=insist)
        self._repeat_later()

    def _cancel_subtree(self, reason: str, *, insist: bool) -> None:
        stack: list[tuple[CancellableNode, str]] = [(self, reason)]
        unrun: list[CancellableNode] = []  # nodes whose task will not end them, callers first
        while stack:
            node, why = stack.pop()
            stage = node.stage
            if stage is ENDED or (node.cancel_reason is not None and not insist):
                continue
            if insist and node._is_being_saved:
                continue
            if node.remote_cancel is not None:
                node._cancel_remotely(node.remote_cancel, why, StopCause.Cancelled)
                continue
            cancellation = node.cancellation
            cancellation.reason = cancellation.reason or why
            below = f"{node.function.name} was cancelled: {reason}"
            stack.extend((child, below) for child in node.children)
            if node.task is not None:
                node.task.cancel()
            if node.task is None or stage is SCHEDULED:
                unrun.append(node)
        for node in reversed(unrun):
            node.end_unrun()

    @property
    def _is_being_saved(self) -> bool:
        """Whether its outcome waits to be written.

        Its function is done then and can swallow no cancellation; cancelling the task would publish
        an outcome that is not saved yet.
        """
        journal = self.tree.journal
        return self.stage is ENDING and journal is not None and not journal.is_closed

    def _cancel_remotely(self, cancel: RemoteCancel, reason: str, cause: StopCause) -> None:
        """Ask the process that runs the call to cancel it; its end arrives like any other."""
        caller, journal = self.parent, self.tree.journal
        runs_caller = caller is not None and caller.remote_cancel is None
        if not runs_caller or journal is None or not journal.is_closed:
            cancel(self.id, reason, cause)
        # This process gives its caller up, and the call continues elsewhere.
        elif self.task is not None:
            self.task.cancel()
        else:
            self.end(self.cancelled_outcome())

    def _repeat_later(self) -> None:
        """Schedule another cancellation, because code may swallow one.

        ``asyncio.wait_for`` does on Python 3.11, if what it waits for is done at the same moment.
        """
        over = self.stage is ENDED or self.loop_handle.loop.is_closed()
        patience, again = self.loop_handle.patience, self._cancel_again
        timer = None if over else self.loop_handle.call_later(patience, again)
        self.cancellation.repeat_at(timer)

    def _cancel_again(self) -> None:
        self._cancel_subtree(self.cancel_reason or "cancelled", insist=True)
        self._repeat_later()

    def cancelled_outcome(self) -> Outcome:
        """Return the outcome of the call if it is cancelled."""
        cancellation = self.cancellation
        state = NodeState.Canceled if cancellation.error is None else NodeState.Error
        return state, None, cancellation.outcome(self.function.name, self.path)
