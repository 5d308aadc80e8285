"""The fold: the record of each call, and views of them, computed from events only."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from treefold.core.agent_events import (
    ConversationOpened,
    LeaseAwaited,
    NoticeGiven,
    RequestFailed,
    RequestRetried,
    RequestSent,
    ResponseCompleted,
    ResponseStreamed,
)
from treefold.core.events import (
    AgentEdited,
    ArgumentsEdited,
    CallAllowed,
    CallEnded,
    CallInherited,
    CallPaused,
    CallReopened,
    CallRequested,
    CallResumed,
    CallStarted,
    Event,
    ProcessDied,
    QuestionAsked,
    QuestionSettled,
    TreeForked,
    ValueSent,
)
from treefold.core.exchange import Exchange
from treefold.core.model_events import TextDelta, TextWasThinking
from treefold.core.question import Answer, Question, QuestionKind, ends_pause
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import added
from treefold.core.views import NO_COST, NO_USAGE, NodeView

_GROWING: Final = {list, dict}
_RUNS: Final = "runs"
_RECEIVES: Final = "receives a response"


class Record:
    """The state of one call, folded from its events: enough to show it, or to resume it."""

    __slots__ = (
        "allowed",
        "answers",
        "asked",
        "caching",
        "changed",
        "children",
        "cost",
        "edit",
        "ended",
        "exchanges",
        "forked_at",
        "inputs",
        "model",
        "notices",
        "partial",
        "path",
        "questions",
        "requested",
        "response",
        "said",
        "started_at",
        "state",
        "status",
        "system",
        "transcript",
        "unclaimed",
        "usage",
        "values",
    )

    def __init__(self, requested: CallRequested, path: str) -> None:
        self.requested = requested
        self.path = path
        self.inputs = requested.inputs
        self.changed = 0  # the number of the last event
        self.state = NodeState.Waiting
        self.status = "waits to be started"
        self.started_at: datetime | None = None
        self.forked_at: datetime | None = None  # when the fork was made in which it is open again
        self.ended: CallEnded | None = None
        self.values: list[Any] = []
        self.children: list[int] = []
        self.model: str | None = None
        self.caching: str | None = None  # of its conversation
        self.system = ""
        self.transcript: list[TranscriptPart] = []
        self.said: tuple[TranscriptPart, ...] = ()  # sent to the model, without a response yet
        self.partial: list[str] = []
        self.usage = NO_USAGE
        self.cost: Decimal | None = NO_COST
        self.notices: list[str] = []
        self.unclaimed: list[int] = []  # indexes of child calls not made again after a resume
        self.questions: dict[str, Question] = {}  # the open ones
        self.asked: dict[str, Question] = {}  # all, by their ids
        self.answers: list[tuple[Question, Answer]] = []
        self.exchanges: list[Exchange] = []
        self.response: ResponseCompleted | None = None  # the last, until the next request is sent
        self.edit: AgentEdited | None = None
        self.allowed = not requested.gated  # whether its gate, if any, has allowed it

    def copy(self) -> "Record":
        """Return a copy that later events do not change."""
        copied = Record(self.requested, self.path)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(copied, name, value.copy() if type(value) in _GROWING else value)
        return copied

    def take(self, event: Event) -> None:
        """Apply *event*, which happened to this call."""
        match event:
            case CallStarted():
                self.state, self.status = NodeState.Running, _RUNS
                self.started_at = datetime.fromtimestamp(event.at, UTC)
            case CallEnded():
                self.ended, self.state, self.status = event, event.state, ""
                self.partial.clear()
                self.questions.clear()
            case ValueSent():
                self.values.append(event.value)
            case ArgumentsEdited():
                self.inputs = event.inputs
            case CallPaused():
                self.state, self.status = NodeState.Paused, event.reason
            case CallResumed():
                self.state, self.status = NodeState.Running, _RUNS
            case TreeForked():
                self.forked_at = datetime.fromtimestamp(event.at, UTC)
                self._reopen()
            case CallReopened() | CallInherited():
                self._reopen()
            case QuestionAsked() | QuestionSettled():
                self._apply_question(event)
            case _:
                self._apply_conversation(event)

    def _apply_question(self, event: QuestionAsked | QuestionSettled) -> None:
        if isinstance(event, QuestionAsked):
            self.questions[event.question.id] = self.asked[event.question.id] = event.question
            return
        self.questions.pop(event.id, None)
        if event.answer is not None and event.id in self.asked:
            self.answers.append((self.asked[event.id], event.answer))

    @property
    def began_at(self) -> datetime | None:
        """When its time began: in a fork, not before the fork was made.

        The time before belongs to the source of the fork.
        """
        if self.started_at is None or self.forked_at is None:
            return self.started_at
        # The store records the time of the fork for a top-level call.
        if self.requested.parent is None:
            return self.forked_at
        return max(self.started_at, self.forked_at)

    def _reopen(self) -> None:
        self.ended = None
        self.answers = [(q, a) for q, a in self.answers if not ends_pause(q, a)]
        waits = self.started_at is None
        self.state = NodeState.Waiting if waits else NodeState.Running
        self.status = "waits to be started" if waits else _RUNS

    def _apply_conversation(self, event: Event) -> None:
        match event:
            case ResponseStreamed():
                self._apply_delta(event)
            case RequestSent() | RequestRetried() | RequestFailed() | ResponseCompleted():
                self.partial.clear()
                self._apply_request(event)
            case ConversationOpened():
                self.model, self.system = event.model, event.system
                self.caching = event.caching
                if not event.goes_on:
                    self.transcript = list(event.transcript)
            case AgentEdited():
                self.edit = event
            case ProcessDied():
                # Only recovery reads it.
                pass
            case CallAllowed():
                self.allowed = True
                # The decision about a call in doubt applies to one run of it only.
                self.answers = [a for a in self.answers if a[0].kind is not QuestionKind.InDoubt]
            case LeaseAwaited():
                self.status = "waits until fewer requests are under way"
            case NoticeGiven():
                self.notices.append(event.text)
                self.unclaimed += event.calls
            case _:
                raise TypeError(f"no fold for {event!r}")

    def _apply_delta(self, event: ResponseStreamed) -> None:
        # Streamed parts are folded after all other events, so the call may have ended before.
        if self.ended is not None:
            return
        self.status = _RECEIVES
        if isinstance(event.delta, TextDelta):
            self.partial.append(event.delta.text)
        elif isinstance(event.delta, TextWasThinking):
            self.partial.clear()

    def _apply_request(
        self, event: RequestSent | RequestRetried | RequestFailed | ResponseCompleted
    ) -> None:
        match event:
            case RequestSent():
                self.status = "waits for the model"
                self.said = event.inputs
                self.response = None
            case ResponseCompleted():
                self.status = _RUNS
                self.transcript += event.parts
                self.said = ()
                self.exchanges.append(event.exchange)
                self.response = event
                # A resumed agent continues after this response, so it asks nothing older again.
                self.answers.clear()
                self._spend(event)
            case RequestRetried():
                self.status = f"tries again in {event.wait:g} s: {event.failure}"
            case RequestFailed():
                self.status = f"the request failed: {event.failure}"
                self._spend(event)

    def _spend(self, event: ResponseCompleted | RequestFailed) -> None:
        if event.usage.total or isinstance(event, ResponseCompleted):
            self.usage += event.usage
            self.cost = added(self.cost, event.cost)


class TreeFold:
    """Folds the events of one tree, in order, and keeps a view of each node.

    After a batch of events only the nodes that it touched, and those above them, get a new view.
    """

    def __init__(self, root_number: int) -> None:
        self._root_number = root_number
        self.records: dict[int, Record] = {}
        self._seqnum = 0
        self._touched: set[int] = set()  # nodes with outdated views
        self.views: dict[int, NodeView] = {}

    def apply(self, events: Iterable[Event] = ()) -> None:
        """Fold *events* and update the views."""
        self.take(events)
        # The id of a node is greater than its parent's, so falling ids update children first.
        for id in sorted(self._touched, reverse=True):
            self.views[id] = self._view(self.records[id])
        self._touched.clear()

    def take(self, events: Iterable[Event]) -> None:
        """Fold *events* without updating the views; the next ``apply`` does that."""
        records, touched = self.records, self._touched
        for event in events:
            node = event.node
            if isinstance(event, CallRequested):
                self._add(event)
            else:
                records[node].take(event)
                if type(event) is CallInherited:
                    self._inherit(records[node])
            self._seqnum += 1
            records[node].changed = self._seqnum
            if node not in touched:
                self._touch(node)

    def _add(self, call: CallRequested) -> None:
        if call.parent is None:
            self.records[call.node] = Record(call, str(self._root_number))
            return
        above = self.records[call.parent]
        self.records[call.node] = Record(call, f"{above.path}.{call.index}")
        # Ctrl-C may interrupt the fold of an event, which is then folded again.
        if not above.children or above.children[-1] != call.node:
            above.children.append(call.node)

    def _inherit(self, record: Record) -> None:
        """Take the time of the fork from the parent of a call that is open in the fork."""
        if (parent := record.requested.parent) is not None:
            record.forked_at = self.records[parent].forked_at

    def _touch(self, node: int) -> None:
        above: int | None = node
        while above is not None and above not in self._touched:
            self._touched.add(above)
            above = self.records[above].requested.parent

    def set_partial_text(self, node: int, text: str) -> None:
        """Set the partial text of a response to *text*.

        That is not an event, so ``update_seqnum`` of the views does not change.
        """
        record = self.records[node]
        if record.ended is None and record.partial != [text]:
            record.partial, record.status = [text], _RECEIVES
            self._touch(node)

    def _view(self, record: Record) -> NodeView:
        ended, changed = record.ended, record.changed
        children = tuple([self.views[id] for id in record.children])
        total_usage, total_cost, status = record.usage, record.cost, record.status
        for child in children:
            changed = max(changed, child.update_seqnum)
            if child.total_usage is not NO_USAGE:
                total_usage += child.total_usage
                total_cost = added(total_cost, child.total_cost)
            if status == _RUNS and not child.state.final:
                status = f"waits for {child.fn} (node {child.id})"
        return NodeView(
            id=record.requested.node,
            path=record.path,
            fn=record.requested.function,
            inputs=record.inputs,
            outputs=ended.outputs if ended else None,
            exception=ended.exception if ended else None,
            state=record.state,
            values=tuple(record.values),
            children=children,
            sequence=record.requested.sequence,
            is_agent=record.requested.is_agent,
            tool_use_id=record.requested.tool_use_id,
            model=record.model,
            system=record.system,
            transcript=(*record.transcript, *record.said),
            partial="".join(record.partial),
            usage=record.usage,
            total_usage=total_usage,
            cost=record.cost,
            total_cost=total_cost,
            status=status,
            notices=tuple(record.notices),
            questions=tuple(record.questions.values()),
            started_at=record.began_at,
            ended_at=datetime.fromtimestamp(ended.at, UTC) if ended else None,
            update_seqnum=changed,
        )
