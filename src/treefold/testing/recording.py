"""``Recording``: a recorded tree, with the requests, answers and end of each call.

It is read from events only, and does not know how it is replayed. A position is the index of an
event in its tree; positions define the order in which a replay lets things happen.
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
from treefold.core.question import FAIL, REPORT, USE, Answer, Question, QuestionKind
from treefold.core.record import CallRecord, TreeFold
from treefold.core.restoring import exception_of
from treefold.core.states import NodeState
from treefold.core.transcript import TranscriptPart

_TIME_LIMITS = {"CallTimeoutError", "BudgetExceeded"}
_STOPPED = "it was stopped when this was recorded"


@dataclass(slots=True)
class RecordedRequest:
    """A request to a model, and its outcome; None if the recording ends before."""

    opened: ConversationOpened
    inputs: tuple[TranscriptPart, ...]
    outcome: ResponseCompleted | RequestFailed | None = None
    position: int | None = None  # of the outcome


@dataclass(slots=True)
class RecordedAnswer:
    """A question, and its answer; None if it was not answered."""

    question: Question
    answer: Answer | None = None
    position: int | None = None  # of the answer


@dataclass(slots=True)
class RecordedCall:
    """One call of a recorded tree."""

    record: CallRecord
    parent: "RecordedCall | None"
    calls: dict[str, "RecordedCall"] = field(default_factory=dict[str, "RecordedCall"])  # by key
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    answers: list[RecordedAnswer] = field(default_factory=list[RecordedAnswer])
    end: int | None = None  # the position of its end
    is_given: bool = False  # a person or an edit supplied its result; the function did not run
    finished_requests: int = 0  # how many outcomes of requests the replay has passed to it

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
        """Whether it was cancelled, or exceeded a timeout or budget."""
        if self.ended is None:
            return False
        failure = self.ended.exception
        by_time = failure is not None and failure.type in _TIME_LIMITS
        return self.ended.state is NodeState.Canceled or by_time

    @property
    def stopped_first(self) -> "RecordedCall":
        """The topmost call that was stopped together with it; possibly itself."""
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
        """Whether it was stopped in this tree, and not in the source of a fork or copy."""
        path = None if self.stop is None else self.stop.path
        return self.parent is None or path == self.record.path

    @property
    def stop(self) -> Stop | None:
        """How it was stopped, if it was."""
        return None if self.ended is None else self.ended.stop

    @property
    def seconds(self) -> float:
        """How long it took."""
        begun = self.record.started_at
        return 0 if begun is None or self.ended is None else self.ended.at - begun.timestamp()

    @property
    def positions(self) -> Iterator[int]:
        """The positions of its end, and of the outcomes of its requests and questions."""
        found = [self.end, *(request.position for request in self.requests)]
        found += [answer.position for answer in self.answers]
        return (position for position in found if position is not None)

    @property
    def next_request(self) -> RecordedRequest | None:
        """The first request whose outcome the replay has not passed to it yet."""
        done = self.finished_requests
        return self.requests[done] if done < len(self.requests) else None

    def answer_to(self, question: Question) -> RecordedAnswer | None:
        """Return the recorded answer to the same question, if it is still in ``answers``."""
        for known in self.answers:
            if known.question.has_key(question.kind, question.key):
                return known
        return None

    def was_unclaimed(self, call: "RecordedCall") -> bool:
        """Whether it did not make *call*, one of its calls, again when it was resumed."""
        return call.record.requested.index in self.record.unclaimed


class Recording:
    """The calls of one tree, by their ids."""

    def __init__(self, events: Sequence[Event]) -> None:
        first = events[0]
        assert isinstance(first, CallRequested)  # the first event of every tree
        self.number = first.index
        fold = TreeFold()
        fold.apply_all(events)
        self.calls: dict[int, RecordedCall] = {}
        for id in sorted(fold):
            self._add_call(fold[id])
        self.root = self.calls[first.node]
        self._opened: dict[int, ConversationOpened] = {}
        for position, event in enumerate(events):
            # In a replay every request fits.
            if isinstance(event, QuestionAsked) and event.question.kind is QuestionKind.Budget:
                continue
            self._add_event(position, event, self.calls[event.node])

    def _add_call(self, record: CallRecord) -> None:
        requested = record.requested
        parent = None if requested.parent is None else self.calls[requested.parent]
        call = self.calls[requested.node] = RecordedCall(record, parent)
        if parent is not None:
            parent.calls[requested.key] = call

    def _add_event(self, position: int, event: Event, call: RecordedCall) -> None:
        match event:
            case CallEnded():
                call.end = position if call.ended is event else None
                call.is_given = call.is_given or event.given
            case ConversationOpened():
                self._opened[event.node] = event
            case RequestSent() | RequestFailed() | ResponseCompleted():
                self._add_request_event(position, event, call)
            case QuestionAsked():
                # In a fork, and after a change of the code, an open question is recorded twice.
                if event.question.id not in {known.question.id for known in call.answers}:
                    call.answers.append(RecordedAnswer(event.question))
            case QuestionSettled():
                for asked in call.answers:
                    if asked.question.id == event.id and event.answer is not None:
                        asked.answer, asked.position = event.answer, position
                        if asked.question.kind is QuestionKind.InDoubt:
                            call.is_given = event.answer.text in {USE, FAIL}
            case _:
                pass

    def _add_request_event(
        self,
        position: int,
        event: RequestSent | RequestFailed | ResponseCompleted,
        call: RecordedCall,
    ) -> None:
        last = call.requests[-1] if call.requests else None
        if isinstance(event, RequestSent):
            if last is not None and not isinstance(last.outcome, ResponseCompleted):
                # This is a retry of the last request.
                call.requests.pop()
            call.requests.append(RecordedRequest(self._opened[event.node], event.inputs))
        elif last is not None and last.outcome is None:
            last.outcome, last.position = event, position

    @property
    def positions(self) -> list[int]:
        """The positions of all outcomes of calls, requests and questions, in order."""
        return sorted(position for call in self.calls.values() for position in call.positions)

    @property
    def pauses_on_tool_error(self) -> bool:
        """Whether a failed function paused its caller, so that a person could decide."""
        questions = [one.question for call in self.calls.values() for one in call.answers]
        return any(q.kind is QuestionKind.Paused and REPORT in q.choices for q in questions)


def recorded_exception(failure: Failure) -> Exception | SystemExit:
    """Return an exception with the recorded class name and message, even of an unknown class."""
    error = exception_of(failure)
    if not isinstance(error, RecordedError) or failure.type == RecordedError.__name__:
        return error

    def message(self: RecordedError) -> str:
        return self.message

    named = type(failure.type, (RecordedError,), {"__str__": message})
    return named(failure.type, failure.message)
