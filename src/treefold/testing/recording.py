"""A tree as it was recorded: what each call asked for, what it was told, and in which order.

Read from events and nothing else. What is done with it, and what has changed since, is not this
module's business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from treefold.core.agent_events import (
    ConversationOpened,
    RequestFailed,
    RequestSent,
    ResponseCompleted,
)
from treefold.core.errors import RecordedError
from treefold.core.events import (
    CallEnded,
    CallRequested,
    Event,
    Failure,
    QuestionAsked,
    QuestionSettled,
    Stop,
)
from treefold.core.fold import Record, TreeFold
from treefold.core.question import FAIL, REPORT, USE, Answer, Question, QuestionKind
from treefold.core.restoring import exception_of
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart

_BY_TIME = {"CallTimeoutError", "BudgetExceeded"}
_STOPPED = "it was stopped when this was recorded"


@dataclass(slots=True)
class RecordedRequest:
    """A request to a model, and what came of it; nothing, if the recording ends before."""

    opened: ConversationOpened
    inputs: tuple[TranscriptPart, ...]
    outcome: ResponseCompleted | RequestFailed | None = None
    place: int | None = None  # of the outcome, among all events


@dataclass(slots=True)
class RecordedAnswer:
    """A question, and what was said to it; None if nobody did."""

    question: Question
    answer: Answer | None = None
    place: int | None = None


@dataclass(slots=True)
class RecordedCall:
    """One call of the tree."""

    record: Record
    parent: "RecordedCall | None"
    calls: dict[str, "RecordedCall"] = field(default_factory=dict[str, "RecordedCall"])  # by key
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    answers: list[RecordedAnswer] = field(default_factory=list[RecordedAnswer])
    end: int | None = None  # the place of its end
    is_given: bool = False  # somebody said what came of it, instead of having it made

    @property
    def id(self) -> int:
        return self.record.requested.node

    @property
    def function(self) -> str:
        return self.record.requested.function

    @property
    def ended(self) -> CallEnded | None:
        return self.record.ended

    @property
    def was_stopped(self) -> bool:
        """Whether it ended because somebody cancelled it, or its time was over."""
        if self.ended is None:
            return False
        failure = self.ended.exception
        by_time = failure is not None and failure.type in _BY_TIME
        return self.ended.state is NodeState.Canceled or by_time

    @property
    def stopped_first(self) -> "RecordedCall":
        """The highest call above it that was stopped together with it, or itself."""
        call = self
        while call.parent is not None and call.parent.was_stopped:
            call = call.parent
        return call

    @property
    def reason(self) -> str:
        """Why it was stopped, as far as that was recorded."""
        return _STOPPED if self.stop is None else self.stop.reason

    @property
    def ended_here(self) -> bool:
        """Whether it was stopped in this tree, and not in one that this is a fork or a copy of."""
        path = None if self.stop is None else self.stop.path
        return self.parent is None or path == self.record.path

    @property
    def stop(self) -> Stop | None:
        """How it was stopped, if it was."""
        return None if self.ended is None else self.ended.stop

    @property
    def seconds(self) -> float:
        """How long it took."""
        begun = self.record.began_at
        return 0 if begun is None or self.ended is None else self.ended.at - begun.timestamp()

    @property
    def places(self) -> Iterator[int]:
        """Where something came of it, or of what it asked."""
        found = [self.end, *(request.place for request in self.requests)]
        found += [answer.place for answer in self.answers]
        return (place for place in found if place is not None)

    def answer_to(self, question: Question) -> RecordedAnswer | None:
        """Return what was said to the same question, and not taken out of ``answers`` yet."""
        for known in self.answers:
            if known.question.has_key(question.kind, question.key):
                return known
        return None

    def was_left(self, call: "RecordedCall") -> bool:
        """Whether it did not make one of its calls again when it was resumed."""
        return call.record.requested.index in self.record.unclaimed


class Recording:
    """The calls of one tree, by their ids."""

    def __init__(self, events: Sequence[Event]) -> None:
        first = events[0]
        assert isinstance(first, CallRequested)  # so every tree begins
        self.number = first.index
        fold = TreeFold(self.number)
        fold.apply(events)
        self.calls: dict[int, RecordedCall] = {}
        for id in sorted(fold.records):
            self._add(fold.records[id])
        self.root = self.calls[first.node]
        self._opened: dict[int, ConversationOpened] = {}
        for place, event in enumerate(events):
            self._take(place, event, self.calls[event.node])

    def _add(self, record: Record) -> None:
        requested = record.requested
        parent = None if requested.parent is None else self.calls[requested.parent]
        call = self.calls[requested.node] = RecordedCall(record, parent)
        if parent is not None:
            parent.calls[requested.key] = call

    def _take(self, place: int, event: Event, call: RecordedCall) -> None:
        match event:
            case CallEnded():
                call.end = place if call.ended is event else None
                call.is_given = call.is_given or event.given
            case ConversationOpened():
                self._opened[event.node] = event
            case RequestSent() | RequestFailed() | ResponseCompleted():
                self._take_of_request(place, event, call)
            case QuestionAsked():
                if event.question not in [known.question for known in call.answers]:  # as in a fork
                    call.answers.append(RecordedAnswer(event.question))
            case QuestionSettled():
                for asked in call.answers:
                    if asked.question.id == event.id and event.answer is not None:
                        asked.answer, asked.place = event.answer, place
                        if asked.question.kind is QuestionKind.InDoubt:
                            call.is_given = event.answer.text in {USE, FAIL}
            case _:
                pass

    def _take_of_request(
        self, place: int, event: RequestSent | RequestFailed | ResponseCompleted, call: RecordedCall
    ) -> None:
        last = call.requests[-1] if call.requests else None
        if isinstance(event, RequestSent):
            if last is not None and not isinstance(last.outcome, ResponseCompleted):
                call.requests.pop()  # it was made again
            call.requests.append(RecordedRequest(self._opened[event.node], event.inputs))
        elif last is not None and last.outcome is None:
            last.outcome, last.place = event, place

    @property
    def places(self) -> list[int]:
        """Where something came of a call, a request or a question, in order."""
        return sorted(place for call in self.calls.values() for place in call.places)

    @property
    def pauses_on_tool_error(self) -> bool:
        """Whether a person was asked what to do about functions that failed."""
        questions = [one.question for call in self.calls.values() for one in call.answers]
        return any(q.kind is QuestionKind.Paused and REPORT in q.choices for q in questions)


def recorded_exception(failure: Failure) -> Exception | SystemExit:
    """Return an exception of the same name that says the same, whatever is loaded here."""
    error = exception_of(failure)
    if not isinstance(error, RecordedError) or failure.type == RecordedError.__name__:
        return error

    def say(self: RecordedError) -> str:
        return self.message

    named = type(failure.type, (RecordedError,), {"__str__": say})
    return named(failure.type, failure.message)
