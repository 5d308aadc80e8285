"""Pauses of a subtree: nothing in it sends a request or starts a call until it is resumed."""

import asyncio
import contextvars
from collections.abc import Mapping
from functools import partial
from typing import Any

from treefold.core.address import address
from treefold.core.agent_events import NoticeGiven
from treefold.core.call_request import Gate
from treefold.core.errors import UsageError
from treefold.core.fact import replace
from treefold.core.function import RunContext
from treefold.core.question import CANCEL, RESUME, Answer, Question, QuestionKey, QuestionKind
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.task import start_task
from treefold.runtime.calls.walk import upwards
from treefold.runtime.limits.leases import give_up_lease
from treefold.runtime.loops.loop_handle import settle
from treefold.runtime.questions.ask import new_question

_WHAT_RESUME_DOES = "resume lets its next request or call go on"


class Pauses:
    """The pauses of one tree."""

    def __init__(self) -> None:
        self.by_node: dict[CallNode, Pause] = {}


class Pause:
    """The pause of a node and all below it, and everything that waits for its end.

    Attributes:
        is_last: whether it is never lifted, because the process is to stop. A person may still
            answer its question, for the next process.
    """

    def __init__(self, node: CallNode, reason: str) -> None:
        self.node = node
        self.reason = reason
        self.is_last = False
        self._postponed: dict[CallNode, tuple[RunContext, contextvars.Context]] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._question: Question | None = None
        self._pauses = node.tree.part(Pauses).by_node
        self._pauses[node] = self
        node.tree.is_held = True
        node.add_end_callback(self.lift)

    def ask(self, reason: str, command: str = "") -> None:
        """Ask a person whether to resume or to cancel; a notice says so if that is asked already.

        *command* is the id of the command to do so, if another process gave one.
        """
        if self._question is not None:
            # One resume ends it, whoever has paused it: the others are to see that in the tree.
            text = f"it was paused once more: {reason}"
            # A command may be executed twice.
            if text not in self.node.record.notices:
                self.node.tree.publish(NoticeGiven(self.node.id, text))
            return
        self.reason = f"{reason}; {_WHAT_RESUME_DOES}"
        node, choices = self.node, (RESUME, CANCEL)
        question = new_question(node, QuestionKind.Paused, self.reason, choices, QuestionKey.Hold)
        question = replace(question, command=command)
        self._question = node.board.ask(question, node.tree, node.loop_handle, self._answered)

    def postpone(self, child: CallNode, context: RunContext, caller: CallNode) -> None:
        """Postpone the start of *child* to the end of the pause; *caller* is Paused until then."""
        self._postponed[child] = (context, contextvars.copy_context())
        child.on_unstarted_end = partial(self._drop, child, caller)
        give_up_lease(caller)
        caller.begin_pause(self.reason)

    def _drop(self, child: CallNode, caller: CallNode) -> None:
        """Drop a postponed child that was cancelled."""
        if self._postponed.pop(child, None) is not None:
            caller.end_pause()

    async def lifted(self) -> None:
        """Wait for the end of the pause."""
        waiting = self.node.loop_handle.loop.create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def lift(self) -> None:
        """End the pause: wake what waits for it, and start the postponed children."""
        if self._pauses.get(self.node) is not self:
            return
        del self._pauses[self.node]
        self.node.tree.is_held = bool(self._pauses)
        self.node.remove_end_callback(self.lift)
        if self._question is not None:
            self.node.board.close(self._question.id)
        for waiting in tuple(self._waiting):
            settle(waiting)
        postponed, self._postponed = self._postponed, {}
        for child, (context, variables) in postponed.items():
            child.on_unstarted_end = None
            if child.parent is not None:
                child.parent.end_pause()
            variables.run(start_or_postpone, child, context)

    def _answered(self, answer: Answer) -> None:
        if answer.text == CANCEL:
            self.node.cancel_on_loop("cancelled while it was paused")
        if self.is_last:
            self._question = None
        else:
            self.lift()


def pause_node(node: CallNode, reason: str, command: str = "") -> None:
    """Pause *node* and all below it before their next request or call.

    A *command* of another process, named by its id, does so once: it may be executed again when a
    person has resumed the node.

    Raises:
        UsageError: *node* has ended.
    """
    if command and any(one.command == command for one in (node.record.asked or {}).values()):
        return
    if node.is_concluded:
        raise UsageError(f"{node!r} has ended, and cannot be paused any more")
    (node.tree.part(Pauses).by_node.get(node) or Pause(node, reason)).ask(reason, command)


def hold(node: CallNode, reason: str) -> None:
    """Pause *node* and all below it without a question, because its process is to stop."""
    if not node.is_concluded:
        pause = node.tree.part(Pauses).by_node.get(node) or Pause(node, reason)
        pause.is_last = True


def why_not_paused(node: CallNode) -> str:
    """Return the message that explains why there is nothing to resume in *node*."""
    above = pause_over(node)
    if above is not None:
        return f"{node!r} is paused because {above.node!r} is: resume {address(above.node.path)}"
    return f"{node!r} is not paused, nor is anything below it"


def pause_over(node: CallNode | None) -> Pause | None:
    """Return the pause of *node* or of the nearest paused node above it, or None."""
    if node is not None and node.tree.is_held:
        pauses = node.tree.part(Pauses).by_node
        for one in upwards(node):
            if one in pauses:
                return pauses[one]
    return None


def start_or_postpone(node: CallNode, context: RunContext) -> None:
    """Start *node*, or postpone that while a node above it is paused."""
    caller = node.parent
    if caller is not None and (pause := pause_over(caller)) is not None:
        pause.postpone(node, context, caller)
    else:
        start_task(node, context)


def gate_while_paused(node: CallNode, gate: Gate | None) -> Gate | None:
    """Return the gate of a call that is about to begin; while it is paused, that also waits."""
    if pause_over(node) is None:
        return gate

    async def wait(context: RunContext) -> Mapping[str, Any]:
        await wait_while_paused(node)
        return node.inputs if gate is None else await gate(context)

    return wait


async def wait_while_paused(node: CallNode) -> None:
    """Wait, as Paused and without a lease, while *node* or a node above it is paused."""
    while (pause := pause_over(node)) is not None:
        give_up_lease(node)
        node.begin_pause(pause.reason)
        try:
            await pause.lifted()
        finally:
            node.end_pause()
