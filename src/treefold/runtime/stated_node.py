"""What a call has come to: what was asked for, its state and its times.

Its tree is told of every change; what an earlier process has written down is taken up from there.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from treefold.core.call_keys import named
from treefold.core.decisions import Rules
from treefold.core.errors import TooLargeError
from treefold.core.events import (
    CallOptions,
    CallPaused,
    CallReopened,
    CallRequested,
    CallResumed,
    Event,
    StopCause,
)
from treefold.core.fold import Record
from treefold.core.restoring import exception_of
from treefold.core.states import NodeState, check_transition
from treefold.runtime.call_request import CallRequest
from treefold.runtime.loop_handle import LoopHandle
from treefold.runtime.placed_node import PlacedNode
from treefold.runtime.tree import Tree


class StatedNode(PlacedNode):
    """A node that knows its state; it does not know how it gets there."""

    __slots__ = (
        "_ends",
        "_repeated",
        "_request",
        "_started",
        "_stops",
        "concluded",
        "inputs",
        "record",
        "stable_id",
        "state",
        "tool_use_id",
    )

    def __init__(
        self,
        id: int,
        request: CallRequest,
        *,
        parent: Any,
        tree: Tree,
        loop_handle: LoopHandle,
        record: Record | None,
    ) -> None:
        super().__init__(loop_handle, id, tree, parent)
        self.function = request.function
        self.inputs = request.args
        self.state = NodeState.Waiting
        self.tool_use_id = request.tool_use_id
        self.asked_for = request.sink is not None
        self._request = request
        self._stops = 0  # for how many reasons it waits for a person
        self._started: float | None = None
        self._ends: float | None = None
        self.concluded = False  # what came of it has been published
        self.record = record  # what an earlier process has written down
        self.stable_id = id  # also of the calls that go on with this one when its tree is resumed
        self._repeated = 0  # how many values it will send that are written down already

    def _appear(self) -> None:
        """Be seen by others from now on."""
        if self.record is None:
            self._take_place(self._request.tied_with)
            try:
                self.tree.publish(self._requested(self._request))
            except TooLargeError:  # there is no such call
                self._leave_place()
                raise
        else:
            self._restore(self.record)

    def _requested(self, request: CallRequest) -> CallRequested:
        parent, key, options = self._parent, request.call_key, None
        if parent is None:
            key = f"#{self.id}" if request.key is None else named(request.key)
            if self.tree.journal is not None:
                options = _options(request)
        return CallRequested(
            self.id,
            None if parent is None else parent.id,
            self.index,
            self.sequence,
            request.function.name,
            request.args,
            request.tool_use_id,
            options,
            key,
            request.gate is not None,
            self.function.is_agent,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} {self.function.name} {self.state}>"

    # What it is

    @property
    def started_at(self) -> datetime | None:
        return None if self._started is None else datetime.fromtimestamp(self._started, UTC)

    @property
    def ended_at(self) -> datetime | None:
        return None if self._ended is None else datetime.fromtimestamp(self._ended, UTC)

    @property
    def rules(self) -> Rules | None:
        """What the models in it and below may not do, beside what rules above say."""
        return self._request.rules

    @property
    def is_ending(self) -> bool:
        """Whether it is clear what came of it, and only that is still to be written down."""
        return self.concluded and not self.state.final

    # How it changes

    def _enter(self, state: NodeState) -> None:
        check_transition(self.state, state)
        if self.state is NodeState.Paused:
            self.tree.paused.discard(self)
        self.state = state
        if state is NodeState.Paused:
            self.tree.paused.add(self)

    def begin_pause(self, reason: str, *, show: Callable[[Event], None] | None = None) -> None:
        """Be Paused from now on; each stop wants its own ``go_on``.

        With *show* that is said there, and is nobody else's business.
        """
        self._stops += 1
        if self.state is NodeState.Running:
            self._enter(NodeState.Paused)
            try:
                (show or self.tree.publish)(CallPaused(self.id, time.time(), reason))
            except TooLargeError:
                self._stops -= 1
                self._enter(NodeState.Running)
                raise

    def end_pause(self, *, show: Callable[[Event], None] | None = None) -> None:
        """Take back one ``stop``."""
        self._stops -= 1
        if not self._stops and self.state is NodeState.Paused:
            self._enter(NodeState.Running)
            (show or self.tree.publish)(CallResumed(self.id, time.time()))

    # What an earlier process has done

    @property
    def stopped_by(self) -> StopCause | None:
        """Why an earlier process stopped it, if it did."""
        ended = None if self.record is None else self.record.ended
        return None if ended is None or ended.stop is None else ended.stop.cause

    def _restore(self, record: Record) -> None:
        requested, ended = record.requested, record.ended
        self.inputs = record.inputs
        self.tool_use_id = requested.tool_use_id
        self.stable_id = requested.continues or self.id
        if record.began_at is not None:
            self._started = record.began_at.timestamp()
            self.state = record.state if ended is None else NodeState.Running
        if ended is not None:
            self.state, self.concluded = ended.state, True
            self._ended = self._ends = ended.at
            self.outputs = ended.outputs
            self.exception = None if ended.exception is None else exception_of(ended.exception)
            self.asked_for = True  # by those who were there
        self._repeated = len(record.values)
        self._take_old_place(
            requested.index, requested.sequence, requested.key, ended=ended is not None
        )

    def resume_as(self, request: CallRequest) -> None:
        """Be the call that *request* asks for, as it was in an earlier process."""
        self.waiting_on = None
        if self.state is NodeState.Paused:
            self.state = NodeState.Running
            self.tree.publish(CallResumed(self.id, time.time()))
        if self.record is not None and self.record.inputs is self.record.requested.inputs:
            self.inputs = request.args  # which may be more than could be written down
        self._request = request
        self.function = request.function
        if self._ended is None:
            self.asked_for = request.sink is not None
        elif request.sink is not None and self._parent is not None:  # and wants all values again
            self._ended = None
            self._parent._running += 1

    def reopen(self) -> None:
        """Be open again: what came of it cannot be had any longer."""
        if self.record is not None:
            self.record = self.record.copy()  # the views go on from here
            self.record.ended = None
        self.tree.publish(CallReopened(self.id, time.time()))
        self._ended, self.concluded = None, False
        self.state, self.outputs, self.exception = NodeState.Running, None, None
        for child in self.children:
            if child.record is not None:
                self._expect(child, child.record.requested.key)
        if self._parent is not None:
            self._parent._running += 1


def _options(request: CallRequest) -> CallOptions | None:
    model = request.model
    options = CallOptions(
        timeout=request.timeout,
        model=None if model is None else str(getattr(model, "name", model)),
        budget=request.budget,
        passing=request.past is not None,
    )
    return None if options == CallOptions() else options
