"""``CallRecord``: the state of one call, computed from its events by the fold of its tree.

A running call and a call read from a journal have the same record: the running one changes it by
publishing events. Only the arguments and the result of a recorded call are replaced without one, by
objects of the program that attaches to it. Views are frozen copies of records (``core.snapshot``).
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, Final

from treefold.core.agent_events import (
    BudgetAwaited,
    ConversationOpened,
    HookDecided,
    LeaseAwaited,
    MessagePosted,
    NoticeGiven,
    RateAwaited,
    RequestFailed,
    RequestRetried,
    RequestSent,
    ResponseCompleted,
)
from treefold.core.arriving import ArrivingResponse, Delta
from treefold.core.budget import Budget, amounts_in, combined
from treefold.core.epoch import Epoch
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
    GuardsAdded,
    GuardsLifted,
    ImportAccepted,
    ProcessDied,
    QuestionAsked,
    QuestionEscalated,
    QuestionNotified,
    QuestionSettled,
    TreeForked,
    TreeHeldBack,
    TreeImported,
    TreeResumed,
    ValueSent,
)
from treefold.core.fact import replace
from treefold.core.frames import Frame, short_arguments
from treefold.core.guards import Guards
from treefold.core.model_events import TextWasThinking
from treefold.core.phases import Phase, PhaseKind, close_phase, end_person, open_phase
from treefold.core.question import CANCEL, Answer, Question, QuestionKind, ends_pause
from treefold.core.said import SaidMessage
from treefold.core.states import PAUSED, RUNNING, WAITING
from treefold.core.transcript import TranscriptPart, UserText
from treefold.core.usage import NO_COST, NO_USAGE, TokenUsage, added
from treefold.core.views import NodeView

RUNS: Final = "runs"
_WAITS: Final = "waits to be started"
_RECEIVES: Final = "receives a response"
_DECISIONS: Final = {QuestionKind.Approval, QuestionKind.InDoubt}
_NOTHING: Final[frozenset[str]] = frozenset()


class Spending:
    """Tokens, US dollars and responses of a call and all calls below it."""

    __slots__ = ("cost", "responses", "usage")

    def __init__(self) -> None:
        self.usage: TokenUsage = NO_USAGE
        self.cost: Decimal | None = NO_COST  # None: a price is not known
        self.responses = 0

    def add(self, usage: TokenUsage, cost: Decimal | None, responses: int) -> None:
        """Add what one request took."""
        self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        self.cost = added(self.cost, cost)
        self.responses += responses


class ConversationRecord:
    """The conversation of a call with a model."""

    __slots__ = (
        "arriving",
        "cost",
        "decisions",
        "edit",
        "epochs",
        "messages",
        "opened",
        "response",
        "responses",
        "transcript",
        "unanswered",
        "usage",
    )

    def __init__(self) -> None:
        self.opened: ConversationOpened | None = None  # how it was opened last
        self.epochs: list[Epoch] | tuple[()] = ()  # in order
        self.transcript: list[TranscriptPart] = []  # of all completed exchanges
        self.unanswered: tuple[TranscriptPart, ...] = ()  # sent to the model, without a response
        self.arriving: ArrivingResponse | None = None  # the response that is not complete yet
        self.responses: list[ResponseCompleted] = []  # what was said
        self.response: ResponseCompleted | None = None  # the last, until the next request is sent
        self.edit: AgentEdited | None = None
        # What people said to it, by id.
        self.messages: dict[str, SaidMessage] | None = None
        self.decisions: dict[tuple[str, str], str] = {}  # of hooks, by name and key
        self.usage = NO_USAGE
        self.cost: Decimal | None = NO_COST

    def deliver(self, inputs: Iterable[TranscriptPart]) -> None:
        """Note which messages are among the *inputs* of a request."""
        for part in inputs:
            if isinstance(part, UserText) and part.message in (known := self.messages or {}):
                said = replace(known[part.message], step=self.step + 1)
                self.messages = known | {said.id: said}

    @property
    def model(self) -> str | None:
        """The name of the model that it was opened with last."""
        return None if self.opened is None else self.opened.model

    @property
    def system(self) -> str:
        """The system prompt that it was opened with last."""
        return "" if self.opened is None else self.opened.system

    @property
    def step(self) -> int:
        """The number of the last response; 0 if there is none."""
        return self.responses[-1].step if self.responses else 0


# The conversation of every call that has none. It is replaced before the first change.
NO_CONVERSATION: Final = ConversationRecord()


class CallRecord:
    """The state of one call: enough to show it, to run it, or to resume it."""

    __slots__ = (
        "_path",
        "allowed",
        "answers",
        "asked",
        "budgets",
        "changed",
        "children",
        "conversation",
        "deadline",
        "edited",
        "ended",
        "foreign",
        "forked",
        "guards",
        "held_back",
        "imported",
        "inert",
        "inputs",
        "lifted",
        "notices",
        "parent",
        "phases",
        "questions",
        "requested",
        "since",
        "spending",
        "started",
        "state",
        "status",
        "unclaimed",
        "values",
        "version",
        "view",
    )

    def __init__(self, requested: CallRequested, parent: "CallRecord | None") -> None:
        self.requested = requested
        self.parent = parent
        self.inputs = requested.inputs
        self.edited = False  # whether the arguments are others than requested
        self.allowed = not requested.gated  # whether its gate, if any, has allowed it
        self.state = WAITING
        self.status = _WAITS
        self.started: float | None = None
        self.forked: float | None = None  # when the fork was made in which it is open again
        self.since: float | None = None  # when its time limits began: its start, or when reopened
        self.deadline: float | None = None  # recorded at its start
        self.version = requested.version  # of the function that it runs with
        self.ended: CallEnded | None = None
        self.conversation = NO_CONVERSATION
        self.spending: Spending | None = None
        self.changed = 0  # the number of the last event
        self.view: NodeView | None = None  # None: there is none yet, or it is outdated
        self._path: str | None = None
        # Most calls have none of these, so the lists are made when the first is added.
        self.children: list[CallRecord] | tuple[()] = ()
        self.values: list[Any] | tuple[()] = ()
        self.notices: list[str] | tuple[()] = ()
        self.phases: list[Phase] | tuple[()] = ()
        self.unclaimed: tuple[int, ...] = ()  # indexes of calls not made again after a resume
        self.held_back = ""  # why the process that opened the journal last does not run its tree
        self.imported = False  # whether its tree came from a file
        self.foreign = False  # whether what it says was allowed is only what such a file says
        self.inert = False  # and no person has resumed it since
        # The permissions that bind its tree, and the names of those that a person has ever lifted.
        options = requested.options
        self.guards: tuple[Guards, ...] = () if options is None else options.guards
        self.lifted = _NOTHING
        self.questions: dict[str, Question] | None = None  # the open ones
        self.asked: dict[str, Question] | None = None  # all, by their ids
        self.budgets: dict[str, Budget] | None = None  # what people raised its budgets to, by place
        # The answers that its code has not received: given in an earlier process, or just now.
        self.answers: tuple[tuple[Question, Answer], ...] = ()
        if parent is not None:
            parent.children = parent.children or []
            parent.children.append(self)

    @property
    def id(self) -> int:
        """The id of the call."""
        return self.requested.node

    @property
    def path(self) -> str:
        """The path of the call in its tree, such as "1.3.2"."""
        if self._path is None:
            numbers: list[str] = []
            above: CallRecord | None = self
            while above is not None and above._path is None:
                numbers.append(str(above.requested.index))
                above = above.parent
            if above is not None and above._path is not None:
                numbers.append(above._path)
            self._path = ".".join(reversed(numbers))
        return self._path

    @property
    def started_at(self) -> datetime | None:
        """When its time began: in a fork, not before the fork was made.

        The time before belongs to the source of the fork.
        """
        if self.started is None:
            return None
        started = self.started
        if self.forked is not None:
            # The store records the time of the fork for a top-level call.
            is_top = self.requested.parent is None
            started = self.forked if is_top else max(started, self.forked)
        return datetime.fromtimestamp(started, UTC)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended."""
        return None if self.ended is None else datetime.fromtimestamp(self.ended.at, UTC)

    @property
    def frame(self) -> Frame:
        """The call as one line of a stack."""
        requested, talk, spending = self.requested, self.conversation, self.spending
        return Frame(
            function=requested.function,
            kind="agent" if requested.is_agent else "code",
            node_id=requested.node,
            path=self.path,
            state=self.state.value,
            arguments=short_arguments(self.inputs),
            model=talk.model,
            responses=talk.step,
            parts=len(talk.transcript) + len(talk.unanswered),
            usage=NO_USAGE if spending is None else spending.usage,
            cost=NO_COST if spending is None else spending.cost,
        )

    def receive_answer(self, kind: QuestionKind, key: str) -> Answer | None:
        """Return the answer to the question with this *kind* and *key*, which is used up; or None.

        The first of several is returned.
        """
        for number, (question, answer) in enumerate(self.answers):
            if question.has_key(kind, key):
                self.answers = self.answers[:number] + self.answers[number + 1 :]
                return answer
        return None

    # What each event changes

    def _start(self, event: CallStarted) -> None:
        self.state, self.status, self.held_back = RUNNING, RUNS, ""
        self.foreign = False
        self.started = self.since = event.at
        self.deadline = event.deadline
        # Who starts it may be bound by more than who requested it.
        self.allowed = self.allowed and not event.gated

    def _end(self, event: CallEnded) -> None:
        # Other threads may read the outcome as soon as the state is final.
        self.ended = event
        self.state, self.status, self.held_back = event.state, "", ""
        self.questions = None
        if self.conversation.arriving is not None:
            self.conversation.arriving = None

    def _send(self, event: ValueSent) -> None:
        self.values = self.values or []
        self.values.append(event.value)

    def _edit(self, event: ArgumentsEdited) -> None:
        self.inputs, self.edited = event.inputs, True
        # An approval was of other arguments.
        self._keep_answers(lambda kind: kind is not QuestionKind.Approval)

    def _allow(self, event: CallAllowed) -> None:
        self.allowed, self.foreign = True, False
        # The decision about a call in doubt applies to one run of it only.
        self._keep_answers(lambda kind: kind is not QuestionKind.InDoubt)

    def _keep_answers(self, keeps: Callable[[QuestionKind], bool]) -> None:
        self.answers = tuple([one for one in self.answers if keeps(one[0].kind)])

    def _pause(self, event: CallPaused) -> None:
        self.state, self.status = PAUSED, event.reason
        if self._is_asleep:
            open_phase(self._phases(), PhaseKind.Queued, event.at)
        else:
            self._wait_for_person(event.at)

    def _resume(self, event: CallResumed) -> None:
        self.state, self.status = RUNNING, RUNS
        close_phase(self._phases(), event.at)
        if not self.questions:
            end_person(self._phases(), event.at)

    @property
    def _is_asleep(self) -> bool:
        """Whether it waits, and only for a time."""
        return bool(self.questions) and not any(
            question.asks_people for question in (self.questions or {}).values()
        )

    def _wait_for_person(self, at: float) -> None:
        phases = self._phases()
        if not any(kind is PhaseKind.Person and end is None for kind, _, end in phases):
            open_phase(phases, PhaseKind.Person, at)

    def _phases(self) -> list[Phase]:
        self.phases = self.phases or []
        return self.phases

    def _hold_back(self, event: TreeHeldBack) -> None:
        self.held_back = event.why

    def _import(self, event: TreeImported) -> None:
        self.imported = self.inert = True
        if self.ended is None:
            self.held_back = why_inert(self.path)
        self._disown()

    def _accept_import(self, event: ImportAccepted) -> None:
        self.inert, self.held_back = False, ""
        self._disown()

    def _disown(self) -> None:
        """Forget what others have decided: the rules and people of this program decide anew."""
        stack: list[CallRecord] = [self]
        while stack:
            record = stack.pop()
            record.foreign = True
            record._keep_answers(lambda kind: kind not in _DECISIONS)
            stack.extend(record.children)

    def _add_guards(self, event: GuardsAdded) -> None:
        self.guards += (event.guards,)

    def _lift_guards(self, event: GuardsLifted) -> None:
        self.lifted |= set(event.names)
        # What is added later binds the tree all the same.
        self.guards = tuple([guards.without(event.names) for guards in self.guards])
        self.held_back = ""

    def _take_up(self, event: TreeResumed | ProcessDied) -> None:
        self.held_back = ""
        phases, last = self._phases(), _last_time(self, event.at)
        if phases and phases[-1].start <= last:  # it is of the process before
            close_phase(phases, last)
        phases.append(Phase(PhaseKind.Down, last, event.at))

    def _fork(self, event: TreeForked) -> None:
        self.forked, self.version = event.at, event.version
        # It is forked by name, as it would be resumed.
        self.inert, self.held_back = False, ""
        self._reopen(event.at)

    def _inherit(self, event: CallInherited) -> None:
        if self.parent is not None:
            self.forked = self.parent.forked
        self.version = event.version
        self._reopen(self.forked)

    def _run_again(self, event: CallReopened) -> None:
        self._reopen(event.at)

    def _reopen(self, at: float | None) -> None:
        self.ended = None
        self.since, self.deadline = at, None
        self.answers = tuple([(q, a) for q, a in self.answers if not _is_over(q, a)])
        waits = self.started is None
        self.state = WAITING if waits else RUNNING
        self.status = _WAITS if waits else RUNS

    def _ask(self, event: QuestionAsked) -> None:
        self.questions = self.questions or {}
        self.asked = self.asked or {}
        self.questions[event.question.id] = self.asked[event.question.id] = event.question
        if event.question.asks_people:
            self._wait_for_person(event.at)

    def _update_question(self, event: QuestionEscalated | QuestionNotified) -> None:
        question = event.question
        if self.questions is not None and self.asked is not None and question.id in self.questions:
            self.questions[question.id] = self.asked[question.id] = question

    def _settle(self, event: QuestionSettled) -> None:
        if self.questions is not None:
            self.questions.pop(event.id, None)
            if not self.questions and self.state is not PAUSED:
                end_person(self._phases(), event.at)
        if event.answer is not None and self.asked is not None and event.id in self.asked:
            question = self.asked[event.id]
            self.answers += ((question, event.answer),)
            if question.kind is QuestionKind.Budget and event.answer.text != CANCEL:
                self._raise_budget(question.key, amounts_in(event.answer.text))

    def _raise_budget(self, key: str, budget: Budget) -> None:
        """Note that a person raised a budget of this call, of one above it or of the runtime."""
        _, levels, place = key.split(":")
        owner = self
        for _ in range(int(levels)):
            assert owner.parent is not None  # it is a call above
            owner = owner.parent
        known = owner.budgets or {}
        owner.budgets = known | {place: combined(known.get(place), budget)}

    def _notice(self, event: NoticeGiven) -> None:
        self.notices = self.notices or []
        self.notices.append(event.text)
        self.unclaimed += event.calls
        self.version = event.version or self.version

    # The conversation

    def _conversing(self) -> ConversationRecord:
        if self.conversation is NO_CONVERSATION:
            self.conversation = ConversationRecord()
        return self.conversation

    def _open(self, event: ConversationOpened) -> None:
        conversation = self._conversing()
        known = conversation.opened
        if known is None or known.epoch != event.epoch:
            conversation.epochs = [*conversation.epochs, event.epoch]
        conversation.opened = event
        if not event.goes_on:
            conversation.transcript = list(event.transcript)

    def _edit_agent(self, event: AgentEdited) -> None:
        conversation = self._conversing()
        if (earlier := conversation.edit) is not None:  # by the fork that this is a fork of
            event = AgentEdited(
                event.node,
                earlier.prompt if event.prompt is None else event.prompt,
                earlier.model if event.model is None else event.model,
                earlier.system if event.system is None else event.system,
            )
        conversation.edit = event

    def _say(self, event: MessagePosted) -> None:
        said = SaidMessage(id=event.id, text=event.text, when=event.when, at=event.at)
        conversation = self._conversing()
        conversation.messages = {**(conversation.messages or {}), event.id: said}

    def _decide(self, event: HookDecided) -> None:
        self._conversing().decisions[event.hook, event.key] = event.text

    def _await_lease(self, event: LeaseAwaited) -> None:
        self.status = "waits until fewer requests are under way"
        open_phase(self._phases(), PhaseKind.Queued, event.at)

    def _await_rate(self, event: RateAwaited) -> None:
        self.status = "waits until its request fits into the rate"
        if event.seconds:
            self.status += f", for {event.seconds:.3g} s"
        open_phase(self._phases(), PhaseKind.Queued, event.at)

    def _await_budget(self, event: BudgetAwaited) -> None:
        self.status = f"waits for other requests that the budget of {event.owner} is reserved for"
        open_phase(self._phases(), PhaseKind.Queued, event.at)

    def _request(self, event: RequestSent) -> None:
        conversation = self._conversing()
        conversation.arriving = None
        conversation.unanswered = event.inputs
        if conversation.messages is not None:
            conversation.deliver(event.inputs)
        conversation.response = None
        self.status = "waits for the model"
        open_phase(self._phases(), PhaseKind.Model, event.at)

    def stream(self, delta: Delta) -> None:
        """Add a fragment of a response that is arriving."""
        conversation = self._conversing()
        if conversation.arriving is None or isinstance(delta, TextWasThinking):
            conversation.arriving = ArrivingResponse()
        conversation.arriving.add(delta)
        self.status = _RECEIVES

    def show_arriving(self, response: ArrivingResponse) -> bool:
        """Show a response that arrives in another process; return whether that changes anything."""
        if self.ended is not None or not response.has_grown:
            return False
        response.has_grown = False
        self._conversing().arriving, self.status = response, _RECEIVES
        return True

    def _retry(self, event: RequestRetried) -> None:
        self._conversing().arriving = None
        self.status = f"tries again in {event.wait:g} s: {event.failure}"
        phases = self._phases()
        open_phase(phases, PhaseKind.Queued, event.at)
        open_phase(phases, PhaseKind.Model, event.at + event.wait)

    def _fail(self, event: RequestFailed) -> None:
        self._conversing().arriving = None
        self.status = f"the request failed: {event.failure}"
        close_phase(self._phases(), event.at)
        if event.usage.total:
            self._spend(event.usage, event.cost, 0)

    def _complete(self, event: ResponseCompleted) -> None:
        conversation = self._conversing()
        conversation.arriving = None
        conversation.transcript += event.parts
        conversation.unanswered = ()
        conversation.responses.append(event)
        conversation.response = event
        self.status = RUNS
        close_phase(self._phases(), event.at)
        # A resumed agent continues after this response, so it asks nothing older again.
        self.answers = ()
        self._spend(event.usage, event.cost, 1)

    def _spend(self, usage: TokenUsage, cost: Decimal | None, responses: int) -> None:
        """Add what a request took to this call and to every call above it."""
        talk = self.conversation
        talk.usage = usage if talk.usage is NO_USAGE else talk.usage + usage
        talk.cost = added(talk.cost, cost)
        above: CallRecord | None = self
        while above is not None:
            above.spending = above.spending or Spending()
            above.spending.add(usage, cost, responses)
            above = above.parent

    # What each type of event changes in the record of its call.
    changes: ClassVar[dict[type[Event], Callable[["CallRecord", Any], None]]] = {
        CallStarted: _start,
        CallEnded: _end,
        ValueSent: _send,
        ArgumentsEdited: _edit,
        CallAllowed: _allow,
        CallPaused: _pause,
        CallResumed: _resume,
        TreeForked: _fork,
        CallInherited: _inherit,
        CallReopened: _run_again,
        QuestionAsked: _ask,
        QuestionEscalated: _update_question,
        QuestionNotified: _update_question,
        QuestionSettled: _settle,
        NoticeGiven: _notice,
        ProcessDied: _take_up,
        TreeResumed: _take_up,
        TreeHeldBack: _hold_back,
        TreeImported: _import,
        ImportAccepted: _accept_import,
        GuardsAdded: _add_guards,
        GuardsLifted: _lift_guards,
        ConversationOpened: _open,
        AgentEdited: _edit_agent,
        MessagePosted: _say,
        HookDecided: _decide,
        LeaseAwaited: _await_lease,
        RateAwaited: _await_rate,
        BudgetAwaited: _await_budget,
        RequestSent: _request,
        RequestRetried: _retry,
        RequestFailed: _fail,
        ResponseCompleted: _complete,
    }


def _is_over(question: Question, answer: Answer) -> bool:
    """Whether an answer does not apply to a call that is open again."""
    return ends_pause(question, answer) or question.kind is QuestionKind.Budget


def _last_time(top: CallRecord, until: float) -> float:
    """Return when *top* or a call below it had its last event before *until*, as records show."""
    last, stack = 0.0, [top]
    while stack:
        record = stack.pop()
        stack.extend(record.children)
        ended = None if record.ended is None else record.ended.at
        for at in (record.requested.at, record.started, record.forked, ended):
            if at is not None and last < at < until:
                last = at
        for _, *times in record.phases:
            for at in times:
                if at is not None and last < at < until:
                    last = at
    return last or until


class TreeFold(dict[int, CallRecord]):
    """The records of one tree, by the ids of their nodes."""

    __slots__ = ("_seqnum",)

    def __init__(self) -> None:
        super().__init__()
        self._seqnum = 0  # of the last change

    def apply(self, event: Event) -> CallRecord:
        """Apply *event*, and return the record of its call."""
        if type(event) is CallRequested:
            above = None if event.parent is None else self[event.parent]
            record = self[event.node] = CallRecord(event, above)
            outdated = above
        else:
            record = outdated = self[event.node]
            record.changes[type(event)](record, event)
        self._seqnum += 1
        record.changed = self._seqnum
        if outdated is not None and outdated.view is not None:
            _discard_views(outdated)
        return record

    def stream(self, node: int, delta: Delta) -> CallRecord:
        """Add a fragment of a response that is arriving; return the record of its call."""
        record = self[node]
        record.stream(delta)
        self._seqnum += 1
        record.changed = self._seqnum
        _discard_views(record)
        return record

    def apply_all(self, events: Iterable[Event]) -> None:
        """Apply *events* in order."""
        for event in events:
            self.apply(event)

    def show_arriving(self, node: int, response: ArrivingResponse) -> None:
        """Show what has arrived of a response in another process.

        That is not an event, so ``update_seqnum`` of the views does not change.
        """
        record = self[node]
        if record.show_arriving(response):
            _discard_views(record)


def _discard_views(record: CallRecord | None) -> None:
    """Discard the views that show *record*: its own, and those of the calls above it."""
    # A call is in the view of its caller, so one without a view has no call with a view above it.
    while record is not None and record.view is not None:
        record.view, record = None, record.parent


def why_inert(run: str) -> str:
    """Return why an imported tree does not run."""
    return f"it was imported; 'treefold resume {run}' lets it run"
