"""``RecordedNode``: what the record of a call says about it, as a program reads it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from treefold.core.events import StopCause
from treefold.core.exchange import Exchange
from treefold.core.function import Node
from treefold.core.record import CallRecord
from treefold.core.states import NodeState
from treefold.core.usage import NO_COST, NO_USAGE, TokenUsage


class RecordedNode(Node[Any]):  # noqa: PLR0904 - properties
    """The properties of a node that depend on its record alone."""

    __slots__ = ()

    record: CallRecord

    @property
    def path(self) -> str:
        return self.record.path

    @property
    def index(self) -> int:
        """Its position among its siblings, from 1."""
        return self.record.requested.index

    @property
    def sequence(self) -> int:
        return self.record.requested.sequence

    @property
    def tool_use_id(self) -> str | None:
        return self.record.requested.tool_use_id

    @property
    def stable_id(self) -> int:
        """Its id, or that of the call of a failed tree that it resumes."""
        return self.record.requested.continues or self.id

    @property
    def state(self) -> NodeState:
        return self.record.state

    @property
    def inputs(self) -> Mapping[str, Any]:
        return self.record.inputs

    @property
    def outputs(self) -> Any:
        ended = self.record.ended
        return None if ended is None else ended.outputs

    @property
    def started_at(self) -> datetime | None:
        return self.record.started_at

    @property
    def ended_at(self) -> datetime | None:
        return self.record.ended_at

    @property
    def usage(self) -> TokenUsage:
        return self.record.conversation.usage

    @property
    def cost(self) -> Decimal | None:
        return self.record.conversation.cost

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """Its completed exchanges with a model; empty if it is not an agent's call."""
        return ()

    @property
    def total_usage(self) -> TokenUsage:
        spending = self.record.spending
        return NO_USAGE if spending is None else spending.usage

    @property
    def total_cost(self) -> Decimal | None:
        spending = self.record.spending
        return NO_COST if spending is None else spending.cost

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self.stopped_by is StopCause.Timeout

    @property
    def stopped_by(self) -> StopCause | None:
        """Why it was stopped, or None."""
        ended = self.record.ended
        return None if ended is None or ended.stop is None else ended.stop.cause
