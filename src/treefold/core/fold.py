"""The fold: applies the events of a tree, in order, to the records of its calls.

Views are made on demand, and kept until an event changes what they show.
"""

from collections.abc import Iterable

from treefold.core.arriving import ArrivingResponse, Delta
from treefold.core.events import CallRequested, Event
from treefold.core.record import RUNS, CallRecord
from treefold.core.usage import NO_COST, NO_USAGE
from treefold.core.views import NodeView


class TreeFold:
    """The records of one tree, by the ids of their nodes."""

    __slots__ = ("_seqnum", "records")

    def __init__(self) -> None:
        self.records: dict[int, CallRecord] = {}
        self._seqnum = 0

    def apply(self, event: Event) -> CallRecord:
        """Apply *event*, and return the record of its call."""
        if type(event) is CallRequested:
            record = self._add(event)
        else:
            record = self.records[event.node]
            record.changes[type(event)](record, event)
        self._note_change(record)
        return record

    def stream(self, node: int, delta: Delta) -> CallRecord:
        """Add a fragment of a response that is arriving; return the record of its call."""
        record = self.records[node]
        record.stream(delta)
        self._note_change(record)
        return record

    def _note_change(self, record: CallRecord) -> None:
        self._seqnum += 1
        record.changed = self._seqnum
        record.view = None
        if (parent := record.parent) is not None and parent.view is not None:
            _discard_views(parent)

    def apply_all(self, events: Iterable[Event]) -> None:
        """Apply *events* in order."""
        for event in events:
            self.apply(event)

    def _add(self, call: CallRequested) -> CallRecord:
        parent = None if call.parent is None else self.records[call.parent]
        record = self.records[call.node] = CallRecord(call, parent)
        if parent is not None:
            parent.children = parent.children or []
            parent.children.append(record)
        return record

    def show_arriving(self, node: int, response: ArrivingResponse) -> None:
        """Show what has arrived of a response in another process.

        That is not an event, so ``update_seqnum`` of the views does not change.
        """
        record = self.records[node]
        if record.show_arriving(response):
            _discard_views(record)

    def view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id and all below it."""
        outdated: list[CallRecord] = []
        stack = [self.records[id]]
        while stack:
            record = stack.pop()
            if record.view is None:
                outdated.append(record)
                stack.extend(record.children)
        # Each record is after its parent, so backwards the views of children are made first.
        for record in reversed(outdated):
            record.view = _view_of(record)
        view = self.records[id].view
        assert view is not None  # made above, unless there was one
        return view


def _discard_views(record: CallRecord | None) -> None:
    """Discard the views that show *record*: its own, and those of the calls above it."""
    # A call is in the view of its caller, so one without a view has no call with a view above it.
    while record is not None and record.view is not None:
        record.view, record = None, record.parent


def _view_of(record: CallRecord) -> NodeView:
    requested, ended, talk = record.requested, record.ended, record.conversation
    arriving = talk.arriving
    spending, changed, status = record.spending, record.changed, record.status
    children: list[NodeView] = []
    for child in record.children:
        view = child.view
        assert view is not None  # made before that of its parent
        children.append(view)
        changed = max(changed, view.update_seqnum)
        if status == RUNS and not view.state.final:
            status = f"waits for {view.fn} (node {view.id})"
    return NodeView(
        id=requested.node,
        path=record.path,
        fn=requested.function,
        inputs=record.inputs,
        outputs=None if ended is None else ended.outputs,
        exception=None if ended is None else ended.exception,
        state=record.state,
        values=tuple(record.values),
        children=tuple(children),
        sequence=requested.sequence,
        is_agent=requested.is_agent,
        tool_use_id=requested.tool_use_id,
        model=talk.model,
        system=talk.system,
        transcript=(*talk.transcript, *talk.said),
        partial="" if arriving is None else "".join(arriving.texts),
        partial_output=None if arriving is None else arriving.output,
        usage=talk.usage,
        total_usage=NO_USAGE if spending is None else spending.usage,
        cost=talk.cost,
        total_cost=NO_COST if spending is None else spending.cost,
        status=status,
        notices=tuple(record.notices),
        questions=tuple(record.questions.values()) if record.questions else (),
        started_at=record.started_at,
        ended_at=record.ended_at,
        update_seqnum=changed,
    )
