"""Calls that other workers run: submitted with their request, followed to their end."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from treefold.core.call_request import CallRequest
from treefold.core.cluster import Ownership
from treefold.core.decisions import Rules
from treefold.core.errors import FencedError, InvalidValueError, UsageError
from treefold.core.events import CallEnded, StopCause
from treefold.core.function import RunContext
from treefold.core.states import NodeState
from treefold.core.value_codec import has_unserializable
from treefold.core.work_engine import Ticket
from treefold.runtime.calls.cancellable_node import RemoteCancel
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stage import Stage
from treefold.runtime.calls.task import run_call
from treefold.runtime.calls.walk import upwards
from treefold.runtime.cluster.follower import Follower
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.limits.leases import give_up_lease
from treefold.runtime.questions.in_doubt import gate_after_crash
from treefold.runtime.questions.pauses import gate_while_paused

log = logging.getLogger(__name__)

Submit = Callable[[Ticket, CallNode], Coroutine[Any, Any, None]]


class RemoteCalls:
    """Has calls run by any worker that serves their queue, this one included.

    Args:
        submit: submits a call to the work engine once its request is written.
        submit_soon: has a task do the same.
        cancel: asks the process that runs a call to cancel it, for a reason.
    """

    def __init__(
        self,
        follower: Follower,
        submit: Submit,
        submit_soon: Callable[[Ticket, CallNode], None],
        cancel: RemoteCancel,
    ) -> None:
        self._follower = follower
        self._submit = submit
        self._submit_soon = submit_soon
        self._abandoned: set[int] = set()  # calls that their callers in this process await no more
        self._cancel = cancel
        # The calls that are waited for here; the future is done when one is to run here.
        self.waiting: dict[int, tuple[CallNode, asyncio.Future[None]]] = {}

    def place(self, id: int, request: CallRequest, parent: CallNode) -> str:
        """Prepare the call with this id for its queue, and return that; "" if it runs here."""
        function, journal = request.function, parent.tree.journal
        assert isinstance(journal, DriveJournal)  # as in every shared store
        if request.gate is not None:
            # It waits for an approval, in this process.
            return ""
        if request.sink is not None or function.streams:
            raise UsageError(f"{function.name} sends values, so it cannot be remote")
        # The guards of a tree are recorded with it, and other workers apply them; not a chat's.
        given = [request.rules, *(one.request.rules for one in upwards(parent))]
        if any(rules is not None and rules != Rules() for rules in given):
            raise UsageError(
                f"{function.name} is called under the permissions or hooks of a chat, which other"
                " workers do not have, so it cannot be remote"
            )
        if has_unserializable(journal.as_written(request.args)):
            raise InvalidValueError(
                f"an argument of {function.name} has no JSON form, and the call is remote: pass"
                " plain data, or an object that pydantic can describe"
            )
        journal.drive.tickets[id] = Ticket(node=id, queue=function.queue)
        return function.queue

    def wait(self, node: CallNode, context: RunContext) -> None:
        """Start a task that waits for the end of a call that is run elsewhere."""
        journal = node.tree.journal
        assert isinstance(journal, DriveJournal)  # as in every shared store
        drive = journal.drive
        # A call of an earlier owner may have ended since its tree was read.
        after = drive.read if drive.length(node.id) else drive.place
        self._follower.follow(node, after=after, goes_on=self._goes_on)
        # Two workers that wait for calls of each other would have no lease left to run them with.
        give_up_lease(node)
        self.waiting[node.id] = node, node.loop_handle.loop.create_future()
        node.context = context
        node.advance(Stage.Scheduled)
        loop, name = node.loop_handle.loop, node.record.requested.function
        node.task = loop.create_task(self._wait(node, context), name=f"remote {name}")
        node.task.add_done_callback(partial(self._stop_waiting, node))

    async def _wait(self, node: CallNode, context: RunContext) -> None:
        (_, here), journal = self.waiting[node.id], node.tree.journal
        assert journal is not None  # it is in the store
        is_submitted = False
        while not node.has_ended and not here.done():
            try:
                if not is_submitted:
                    await self._submit(
                        Ticket(node=node.id, queue=node.record.requested.queue), node
                    )
                    is_submitted = True
                await _first(node, here)
            except asyncio.CancelledError:
                node.suspend_if_loop_ends()
                if journal.is_closed:
                    return  # this process stops, and the call continues elsewhere
                # Other code cancelled this task, and the call with it.
                reason = node.cancel_reason or "cancelled"
                self._cancel(node.id, reason, StopCause.Cancelled)
            except FencedError:
                return  # another worker runs the caller, and waits for the call
        if here.done() and node.stage is Stage.Scheduled:
            await run_call(node, context)

    def note_abandoned(self, node: int) -> None:
        """Note that the caller of a call, in this process, has stopped waiting for it."""
        if node in self.waiting:
            self._abandoned.add(node)

    def _goes_on(self, node: CallNode, ended: CallEnded) -> bool:
        """Whether a call has ended because its caller gave it up in an earlier process.

        In this process the caller makes the call again, and awaits it: what happened to it before
        must not be what it gets.
        """
        is_given_up = ended.stop is not None and ended.stop.cause is StopCause.Abandoned
        if not is_given_up or node.id not in self.waiting or node.id in self._abandoned:
            return False
        self._submit_soon(Ticket(node=node.id, queue=node.record.requested.queue), node)
        return True

    def _stop_waiting(self, node: CallNode, task: "asyncio.Task[None]") -> None:
        """Forget a call that *task* awaits no longer; end its node if it continues elsewhere."""
        self.waiting.pop(node.id, None)
        self._abandoned.discard(node.id)
        self._follower.forget(node)
        # Here and not in the task, which may have been cancelled before its first line.
        node.end_if_never_begun(task)

    def follow_loaded(self, root: CallNode, journal: DriveJournal) -> None:
        """Follow the open remote calls in a tree that was adopted.

        So they are cancelled where they run, even if their callers do not make them again.
        """
        for node in self.run_with(root):
            for child in node.children:
                if self._is_elsewhere(child):
                    read = journal.drive.read
                    self._follower.follow(child, after=read, goes_on=self._goes_on)

    def run_with(self, root: CallNode) -> list[CallNode]:
        """Return *root* and the calls below it that the same process runs with it."""
        found, left = list[CallNode](), [root]
        while left:
            node = left.pop()
            found.append(node)
            left += [child for child in node.children if not self._is_elsewhere(child)]
        return found

    def _is_elsewhere(self, node: CallNode) -> bool:
        _, here = self.waiting.get(node.id, (node, None))
        return bool(node.record.requested.queue) and (here is None or not here.done())

    def run_here(self, id: int) -> CallNode | None:
        """Run a call here that a task waits for, and return it; None if no task does."""
        node, here = self.waiting.get(id, (None, None))
        if node is None or here is None or here.done() or node.state is not NodeState.Waiting:
            return None
        self._follower.forget(node)
        node.request.gate = gate_while_paused(node, gate_after_crash(node, node.request.gate))
        here.set_result(None)
        return node


async def _first(node: CallNode, here: "asyncio.Future[None]") -> None:
    """Wait until *node* has ended, or *here* is done."""
    ended = node.loop_handle.loop.create_future()

    def wake(*_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    node.add_end_callback(wake)
    here.add_done_callback(wake)
    try:
        await ended
    finally:
        node.remove_end_callback(wake)
        here.remove_done_callback(wake)


def is_remote(ownership: Ownership) -> bool:
    """Whether a drive is a call whose caller other workers may run."""
    return ownership.node != ownership.tree
