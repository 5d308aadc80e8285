"""One tree of a shared store that this process runs."""

import asyncio

from treefold.core.address import address
from treefold.core.cluster import Ownership
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import is_parked, subtree
from treefold.runtime.cluster.remote_calls import RemoteCalls
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.questions.in_doubt import would_be_in_doubt
from treefold.runtime.questions.pauses import hold


class Run:
    """A tree, or a remote call, that was adopted, and whether it may be given up.

    It is used on the event loop.

    Attributes:
        rested: set when the tree has ended, or only waits: it needs no slot any more.
        over: set when this process does not run it any more.
        is_leaving: its journal is closed, and it is being given up.
        is_held_above: a call above this remote call is paused. Nobody would wake it when that ends.
    """

    def __init__(
        self,
        journal: DriveJournal,
        root: CallNode,
        ownership: Ownership,
        remote_calls: RemoteCalls,
    ) -> None:
        self.journal = journal
        self.root = root
        self.ownership = ownership
        self._remote_calls = remote_calls
        self.rested = asyncio.Event()
        self.over = asyncio.Event()
        self.is_leaving = False
        self.is_held_above = False
        self.has_notice = False  # whether the tree says why it stays here
        self._executing = 0  # commands
        self._is_held = False

    @property
    def node(self) -> int:
        """The topmost node of its drive."""
        return self.ownership.node

    @property
    def is_lost(self) -> bool:
        """Whether another worker has adopted it."""
        return self.journal.drive.refusal is not None

    @property
    def rests(self) -> bool:
        """Whether it has ended, or only waits: for a person, or for calls that others run."""
        # A remote call in it that runs here, too, has a slot of its own.
        return self.root.has_ended or is_parked(self.root, self._remote_calls.waiting)

    @property
    def is_idle(self) -> bool:
        """Whether it has ended, or nothing in it can continue before a person answers."""
        is_held = self._is_held or self.is_held_above
        return self.root.has_ended or (not is_held and is_parked(self.root))

    def note_rest(self) -> None:
        """Set or clear ``rested``."""
        if self.rests:
            self.rested.set()
        else:
            self.rested.clear()

    def begin_commands(self) -> bool:
        """Keep it here while commands are executed; False if it is being given up."""
        if self.is_leaving:
            return False
        self._executing += 1
        return True

    def end_commands(self) -> None:
        """End what ``begin_commands`` began."""
        self._executing -= 1

    @property
    def is_executing(self) -> bool:
        """Whether commands are being executed."""
        return self._executing > 0

    def hold(self) -> None:
        """Let nothing more begin in the tree, because this process is to stop."""
        # From here on it waits for its next worker, and only seems to wait for a person.
        self._is_held = True
        hold(self.root, "its worker is being stopped")

    @property
    def is_quiet(self) -> bool:
        """Whether no request is under way, and no call that must not be repeated."""
        return not any(
            node.is_under_way and (node.is_requesting or _must_not_repeat(node))
            for node in self._remote_calls.run_with(self.root)
        )

    def awaited(self) -> list[int]:
        """Return the ids of the remote calls in it that have not ended, as far as is known."""
        return [
            node.id
            for node in subtree(self.root)
            if node is not self.root and node.record.requested.queue and not node.has_ended
        ]

    def seconds_left(self) -> float | None:
        """Return the seconds until time changes something in it; None if it does not.

        A call has a deadline, a question expires or is escalated, or a sleep ends. The
        call has to run for that, so a worker has to take it up again then.
        """
        found, now = list[float](), self.root.tree.now()
        for node in self._remote_calls.run_with(self.root):
            if not node.has_ended:
                if node.record.deadline is not None:
                    found.append(node.record.deadline - now)
                asked = (node.record.questions or {}).values()
                found += [one.due - now for one in asked if one.due is not None]
                own = [account for account in node.accounts if account.owner is node]
                found += [left for one in own if (left := one.seconds_left()) is not None]
        return max(0.0, min(found)) if found else None

    def why_kept(self) -> str | None:
        """Return why it has to stay in this process although it is parked, or None."""
        if self.root.asked_for:
            return "its result is awaited here"
        if self.root.tree.has_bags:
            return "its session bags hold objects"
        if self.root.tree.deps is not None and self.root.tree.deps.is_given:
            return "its dependencies were given in this process"
        for node in self._remote_calls.run_with(self.root):
            if _must_not_repeat(node):
                name = f"{node.function.name} ({address(node.path)})"
                return f"{name} has begun and must not run again"
        return None


def _must_not_repeat(node: CallNode) -> bool:
    return not node.has_ended and would_be_in_doubt(node)
