"""What a tree looks like, computed from its events and nothing else."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ramify.core.events import CallEnded, CallRequested, CallStarted, Event, Failure, ValueSent
from ramify.core.states import NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One call and all below it, at one moment.

    Example:
        >>> from ramify import CodeFunction, Runtime
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=add), {"a": 1, "b": 2})
        ...     node.result()
        ...     view = runtime.get_view(node.id)
        3
        >>> view.fn, dict(view.inputs), view.outputs, view.state.value
        ('add', {'a': 1, 'b': 2}, 3, 'success')
    """

    id: int
    path: str
    fn: str
    inputs: Mapping[str, Any]
    outputs: Any
    exception: Failure | None
    state: NodeState
    values: tuple[Any, ...]
    children: "tuple[NodeView, ...]"
    sequence: int  # the number of the call; calls asked for in parallel share one
    started_at: datetime | None
    ended_at: datetime | None
    update_seqnum: int


@dataclass(slots=True)
class _Record:
    """What the events have said of one node so far."""

    requested: CallRequested
    path: str
    started_at: datetime | None = None
    ended: CallEnded | None = None
    values: list[Any] = field(default_factory=list[Any])
    children: list[int] = field(default_factory=list[int])


class TreeFold:
    """Takes in the events of one tree, in order, and keeps a view of each node.

    After a batch of events only the nodes that they touched, and those above them, get a new view.
    A node's id is greater than its parent's, so going by falling id makes children before parents.
    """

    def __init__(self, root_number: int) -> None:
        self._root_number = root_number
        self._records: dict[int, _Record] = {}
        self._seqnum = 0
        self.views: dict[int, NodeView] = {}

    def apply(self, events: Iterable[Event]) -> None:
        """Take in *events*."""
        touched: set[int] = set()
        for event in events:
            self._seqnum += 1
            self._take(event)
            above: int | None = event.node
            while above is not None and above not in touched:
                touched.add(above)
                above = self._records[above].requested.parent
        for id in sorted(touched, reverse=True):
            self.views[id] = self._view(self._records[id])

    def _take(self, event: Event) -> None:
        match event:
            case CallRequested(parent=int(parent)):
                above = self._records[parent]
                above.children.append(event.node)
                self._records[event.node] = _Record(event, f"{above.path}.{event.index}")
            case CallRequested():
                self._records[event.node] = _Record(event, str(self._root_number))
            case CallStarted():
                self._records[event.node].started_at = datetime.fromtimestamp(event.at, UTC)
            case ValueSent():
                self._records[event.node].values.append(event.value)
            case CallEnded():
                self._records[event.node].ended = event
            case _:
                raise TypeError(f"no fold for {event!r}")

    def _view(self, record: _Record) -> NodeView:
        ended = record.ended
        running = NodeState.Running if record.started_at else NodeState.Waiting
        return NodeView(
            id=record.requested.node,
            path=record.path,
            fn=record.requested.function,
            inputs=record.requested.inputs,
            outputs=ended.outputs if ended else None,
            exception=ended.exception if ended else None,
            state=ended.state if ended else running,
            values=tuple(record.values),
            children=tuple([self.views[id] for id in record.children]),
            sequence=record.requested.sequence,
            started_at=record.started_at,
            ended_at=datetime.fromtimestamp(ended.at, UTC) if ended else None,
            update_seqnum=self._seqnum,
        )
