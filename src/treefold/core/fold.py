"""What a tree looks like, computed from its events and nothing else."""

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
    """What the events have said of one node so far: all that is needed to show it, or to go on."""

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
        self.forked_at: datetime | None = None  # when the tree was forked in which it is open again
        self.ended: CallEnded | None = None
        self.values: list[Any] = []
        self.children: list[int] = []
        self.model: str | None = None
        self.caching: str | None = None  # of its conversation
        self.system = ""
        self.transcript: list[TranscriptPart] = []
        self.said: tuple[TranscriptPart, ...] = ()  # to the model, without a response yet
        self.partial: list[str] = []
        self.usage = NO_USAGE
        self.cost: Decimal | None = NO_COST
        self.notices: list[str] = []
        self.unclaimed: list[int] = []  # indexes of calls that were not made again when it resumed
        self.questions: dict[str, Question] = {}
        self.asked: dict[str, Question] = {}  # each that there ever was
        self.answers: list[tuple[Question, Answer]] = []
        self.exchanges: list[Exchange] = []
        self.response: ResponseCompleted | None = None  # since which nothing was sent
        self.edit: AgentEdited | None = None
        self.allowed = not requested.gated  # nothing stands before it any longer

    def copy(self) -> "Record":
        """Return what is known now, whatever happens later."""
        known = Record(self.requested, self.path)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(known, name, value.copy() if type(value) in _GROWING else value)
        return known

    def take(self, event: Event) -> None:
        """Take in something that happened to the node."""
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
                self._take_of_people(event)
            case _:
                self._take_of_conversation(event)

    def _take_of_people(self, event: QuestionAsked | QuestionSettled) -> None:
        if isinstance(event, QuestionAsked):
            self.questions[event.question.id] = self.asked[event.question.id] = event.question
            return
        self.questions.pop(event.id, None)
        if event.answer is not None and event.id in self.asked:
            self.answers.append((self.asked[event.id], event.answer))

    @property
    def began_at(self) -> datetime | None:
        """Since when it is timed; the time before a fork is that of the tree that it comes from."""
        if self.started_at is None or self.forked_at is None:
            return self.started_at
        if self.requested.parent is None:  # as the store has it
            return self.forked_at
        return max(self.started_at, self.forked_at)

    def _reopen(self) -> None:
        self.ended = None
        self.answers = [(q, a) for q, a in self.answers if not ends_pause(q, a)]
        waits = self.started_at is None
        self.state = NodeState.Waiting if waits else NodeState.Running
        self.status = "waits to be started" if waits else _RUNS

    def _take_of_conversation(self, event: Event) -> None:
        match event:
            case ResponseStreamed():
                self._take_delta(event)
            case RequestSent() | RequestRetried() | RequestFailed() | ResponseCompleted():
                self.partial.clear()
                self._take_of_request(event)
            case ConversationOpened():
                self.model, self.system = event.model, event.system
                self.caching = event.caching
                if not event.goes_on:
                    self.transcript = list(event.transcript)
            case AgentEdited():
                self.edit = event
            case ProcessDied():
                pass  # it matters when the next process resumes the tree
            case CallAllowed():
                self.allowed = True
                # a decision about a call in doubt is for one run of it
                self.answers = [a for a in self.answers if a[0].kind is not QuestionKind.InDoubt]
            case LeaseAwaited():
                self.status = "waits until fewer requests are under way"
            case NoticeGiven():
                self.notices.append(event.text)
                self.unclaimed += event.calls
            case _:
                raise TypeError(f"no fold for {event!r}")

    def _take_delta(self, event: ResponseStreamed) -> None:
        if self.ended is not None:  # nobody looked in time
            return
        self.status = _RECEIVES
        if isinstance(event.delta, TextDelta):
            self.partial.append(event.delta.text)
        elif isinstance(event.delta, TextWasThinking):
            self.partial.clear()

    def _take_of_request(
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
                self.answers.clear()  # nothing that was asked before will be asked again
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
    """Takes in the events of one tree, in order, and keeps a view of each node.

    After a batch of events only the nodes that they touched, and those above them, get a new view.
    A node's id is greater than its parent's, so going by falling id makes children before parents.
    """

    def __init__(self, root_number: int) -> None:
        self._root_number = root_number
        self.records: dict[int, Record] = {}
        self._seqnum = 0
        self._touched: set[int] = set()  # the nodes whose views are out of date
        self.views: dict[int, NodeView] = {}

    def apply(self, events: Iterable[Event] = ()) -> None:
        """Take in *events*, and make new views."""
        self.take(events)
        for id in sorted(self._touched, reverse=True):
            self.views[id] = self._view(self.records[id])
        self._touched.clear()

    def take(self, events: Iterable[Event]) -> None:
        """Take in *events*; the views are for whoever looks next."""
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
        if not above.children or above.children[-1] != call.node:  # or it comes again
            above.children.append(call.node)

    def _inherit(self, record: Record) -> None:
        """Time a call that is open in a fork, too, as the call that made it."""
        if (parent := record.requested.parent) is not None:
            record.forked_at = self.records[parent].forked_at

    def _touch(self, node: int) -> None:
        above: int | None = node
        while above is not None and above not in self._touched:
            self._touched.add(above)
            above = self.records[above].requested.parent

    def hear(self, node: int, text: str) -> None:
        """Take in what a model has said so far; that is no event, and views keep their numbers."""
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
