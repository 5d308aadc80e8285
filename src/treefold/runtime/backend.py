"""``Backend``: where the trees of a runtime are kept, and which process runs them.

There are three, and a runtime has one of them from its construction to its end: ``InMemory``, the
``Driver`` of a journal that one process writes, and the ``Worker`` of one that many write. Runtime
and engine ask their backend, and never which of them it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from treefold.core.budget import Budget
from treefold.core.call_request import CallRequest
from treefold.core.edit import Edit
from treefold.core.function import Node, RunContext
from treefold.core.question import Question
from treefold.core.said import SaidMessage
from treefold.core.store import Store
from treefold.core.work_engine import Stop, Ticket
from treefold.runtime.calls.node import CallNode
from treefold.runtime.durable.tree_source import NewTree
from treefold.runtime.durable.worker_settings import WorkerSettings, WorkerStatus
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.event_stream import EventSource, TreeEvents
from treefold.runtime.trees.watch import ViewSource


class Control(Protocol):
    """Asks the process that runs a tree to do something; see ``Observer``."""

    def cancel(self, id: int, reason: str = ...) -> None: ...
    def pause(self, id: int, reason: str = ...) -> None: ...
    def resume(
        self, id: int, *, budget: Budget | None = None, without: Sequence[str] = ()
    ) -> None: ...
    def say(self, id: int, text: str, *, when: Literal["next", "idle"] = ...) -> SaidMessage: ...


class SharedWork(Protocol):
    """What a runtime does for others in a store that they share; see ``Worker``."""

    settings: WorkerSettings

    async def work(self, queues: Collection[str], slots: int, drain: float, stop: Stop) -> None: ...
    def status(self) -> WorkerStatus: ...


class Placement(Protocol):
    """Has top-level calls run by other workers; see ``Worker``."""

    def new_tree(self, request: CallRequest) -> NewTree:
        """Return a new tree that any worker may run which serves the queue of *request*."""
        ...

    def new_fork(self, calls: int, source: Ticket | None) -> NewTree:
        """Return a new tree for the workers of its *source*, with ids for that many calls."""
        ...

    def ticket(self, tree: int) -> Ticket | None:
        """Return by what workers are found for a tree; not on an event loop."""
        ...

    def withdraw(self, tree: int) -> None:
        """Forget a new tree that is not to be submitted."""
        ...

    def submit(self, root: CallNode) -> None:
        """Submit the new tree of *root*; runs on the loop."""
        ...


class RemoteCalls(Protocol):
    """Has calls run by other workers than their caller; see ``cluster/remote_calls.py``."""

    def place(self, id: int, request: CallRequest, parent: CallNode) -> str:
        """Prepare the call with this id for its queue, and return that; "" if it runs here.

        Raises:
            UsageError: it cannot be run elsewhere.
        """
        ...

    def wait(self, node: CallNode, context: RunContext) -> None:
        """Start a task that waits for the end of a call that is run elsewhere."""
        ...


class Forking(Protocol):
    """Starts trees that share the past of another; see ``Forks``."""

    def fork(
        self,
        given: Node | int,
        at: int | None,
        edit: Edit | None,
        key: str | None = None,
        without: Sequence[str] = (),
    ) -> CallNode:
        """Start a fork; one with a *key* is started once."""
        ...

    def continue_failed(
        self, root: CallNode, budget: Budget | None, without: Sequence[str] = ()
    ) -> CallNode:
        """Return the fork that continues a tree which failed or was cancelled."""
        ...


class Backend(ABC):  # noqa: PLR0904 - all that differs between the three
    """Keeps the trees of one runtime. What it does not say otherwise is to be done in memory.

    Attributes:
        store: the journal, if there is one.
        held_back: the ids of trees that this process cannot run.
        forks: starts forks; only recorded trees have any.
        worker: what this process does for others that share the store.
        placement: has top-level calls run by other workers; None if this process runs its own.
        remote_calls: has calls run apart from their callers; None if all run here.
    """

    store: Store | None = None
    held_back: Collection[int] = ()
    forks: Forking | None = None
    worker: SharedWork | None = None
    placement: Placement | None = None
    remote_calls: RemoteCalls | None = None

    # From its opening to its closing

    def start(self, loop_handle: LoopHandle) -> None:
        """Resume what earlier processes left open, and hear of what others ask for; on the loop."""

    def stop_taking(self) -> None:
        """Take no more trees of other processes; on the loop."""

    async def suspend(self) -> None:
        """Write what is left, and record nothing any more: open trees will be resumed."""

    async def stop(self) -> None:
        """End the tasks of this backend; trees that run here go on."""

    def close(self) -> None:
        """Write what is left, and close the store; not on an event loop."""

    def flush(self) -> None:
        """Block until all events so far are written.

        Raises:
            StoreError: they cannot be written now.
        """

    # Calls

    def opened(self, root: CallNode) -> None:
        """Note that this process begins to run a top-level call."""

    def found(self, root: CallNode, place: int) -> None:
        """Note that a tree was read because a program looks at it, up to the entry at *place*."""

    def note_end(self, node: CallNode) -> None:
        """Note the end of a call that was open when its tree was read."""

    def resume_with(self, root: CallNode, request: CallRequest) -> None:
        """Resume a tree that was held back for want of what *request* has; on the loop."""

    @abstractmethod
    def invoked_again(self, root: CallNode, request: CallRequest) -> CallNode | None:
        """Continue a call that has failed for want of something outside it, and is asked for again.

        Returns:
            None if it cannot be continued.
        """

    @abstractmethod
    def resume_ended(
        self, node: CallNode, budget: Budget | None, without: Sequence[str]
    ) -> CallNode | None:
        """Continue a call that has failed or was cancelled, because a person asks for it.

        Returns:
            None if it cannot be continued.
        """

    @abstractmethod
    def resume_held_back(self, root: CallNode, without: Sequence[str]) -> None:
        """Resume a tree that was held back; a person has lifted the guards of these names.

        Raises:
            HeldBackError: this process still lacks something.
            UsageError: this process runs it.
            InvalidValueError: it has no guard of one of these names.
        """

    def delete(self, loop_handle: LoopHandle, tree: int) -> None:
        """Delete a finished tree from the store, from any thread.

        Raises:
            UsageError: a fork of it is being made.
            StoreBusyError: this is the loop's thread, and another program has the store locked.
        """

    # What programs and people see and ask

    def recovered(self) -> list[int]:
        """Return the trees of earlier processes that were resumed, or can be, oldest first."""
        return []

    def past_trees(self, loop_handle: LoopHandle) -> list[CallNode]:
        """Return the top-level calls of all recorded trees; parked and finished ones are unread."""
        return []

    def events(self, node: CallNode) -> EventSource:
        """Return what reads the events of the tree of *node*."""
        return TreeEvents(node.tree)

    def views(self, node: CallNode) -> ViewSource:
        """Return what makes views of the tree of *node*, whichever process runs it."""
        return node.tree

    def elsewhere(self, node: CallNode) -> Control | None:
        """Return what asks another worker to do something, if one runs the tree of *node*."""
        return None

    def as_written(self, text: str) -> str:
        """Return *text* as observers see it."""
        return text

    def find_question(self, id: str) -> None:
        """Know the question with this id, which an earlier process may have asked."""

    @abstractmethod
    def questions(self) -> list[Question]:
        """Return the open questions of all trees, oldest first."""

    @abstractmethod
    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None) -> None:
        """Answer a question, from any thread, unless another process has answered it already."""

    @abstractmethod
    def expire(self, question: Question) -> None:
        """Let a question expire, unless it has been answered; on the loop."""
