"""The state of a call: its request, its state and its times.

Every change is published to its tree; a recovered call is restored from its record.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from treefold.core.call_keys import named
from treefold.core.call_request import CallRequest
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
from treefold.runtime.calls.placed_node import PlacedNode
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.tree import Tree


class StatedNode(PlacedNode):
    """A node with a state and the transitions between states; subclasses decide when to change."""

    __slots__ = (
        "_ends",
        "_pauses",
        "_repeated",
        "_request",
        "_started",
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
        self._pauses = 0  # how many begin_pause calls have not been ended
        self._started: float | None = None
        self._ends: float | None = None
        self.concluded = False  # its outcome is decided, and published or recorded
        self.record = record  # of an earlier process
        self.stable_id = id  # the same for the calls that continue this one in forks
        self._repeated = 0  # how many values it will send that are recorded already

    def _appear(self) -> None:
        """Take its place in the tree and publish the request, or restore it from its record."""
        if self.record is None:
            self._take_place(self._request.tied_with)
            try:
                self.tree.publish(self._requested(self._request))
            except TooLargeError:  # then there is no call
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
    def request(self) -> CallRequest:
        """The request that it was started with."""
        return self._request

    @property
    def rules(self) -> Rules | None:
        """The rules for models in this call and below, in addition to those of calls above."""
        return self._request.rules

    @property
    def is_ending(self) -> bool:
        """Whether its outcome is decided, and only has to be saved."""
        return self.concluded and not self.state.final

    # Transitions

    def _enter(self, state: NodeState) -> None:
        check_transition(self.state, state)
        if self.state is NodeState.Paused:
            self.tree.paused.discard(self)
        self.state = state
        if state is NodeState.Paused:
            self.tree.paused.add(self)

    def begin_pause(self, reason: str, *, show: Callable[[Event], None] | None = None) -> None:
        """Enter Paused if it runs; each call of this needs a matching ``end_pause``.

        The change is passed to *show*, if given, instead of being published.
        """
        self._pauses += 1
        if self.state is NodeState.Running:
            self._enter(NodeState.Paused)
            try:
                (show or self.tree.publish)(CallPaused(self.id, time.time(), reason))
            except TooLargeError:
                self._pauses -= 1
                self._enter(NodeState.Running)
                raise

    def end_pause(self, *, show: Callable[[Event], None] | None = None) -> None:
        """End one pause; the call runs again when none is left."""
        self._pauses -= 1
        if not self._pauses and self.state is NodeState.Paused:
            self._enter(NodeState.Running)
            (show or self.tree.publish)(CallResumed(self.id, time.time()))

    # Recovered calls

    @property
    def stopped_by(self) -> StopCause | None:
        """Why an earlier process stopped it, or None."""
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
            self.asked_for = True  # in the earlier process
        self._repeated = len(record.values)
        self._take_old_place(
            requested.index, requested.sequence, requested.key, ended=ended is not None
        )

    def resume_as(self, request: CallRequest) -> None:
        """Attach a new request to a recovered call, which continues from its recorded state."""
        self.waiting_on = None
        if self.state is NodeState.Paused:
            self.state = NodeState.Running
            self.tree.publish(CallResumed(self.id, time.time()))
        if self.record is not None and self.record.inputs is self.record.requested.inputs:
            # These may contain objects that could not be serialized.
            self.inputs = request.args
        self._request = request
        self.function = request.function
        if self._ended is None:
            self.asked_for = request.sink is not None
        elif request.sink is not None and self._parent is not None:
            # It has ended, but its values have to be sent to the sink again.
            self._ended = None
            self._parent._running += 1

    def reopen(self) -> None:
        """Reopen an ended call: it must run again, because its outcome cannot be restored."""
        if self.record is not None:
            # The fold of the tree shares this record, and changes it when CallReopened is folded.
            self.record = self.record.copy()
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
        passing=request.prior is not None,
    )
    return None if options == CallOptions() else options
