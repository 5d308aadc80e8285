"""The events of a call, named in the past tense.

A tree is a fold over its events, a journal is a list of events, and views are made from events
only. Times are seconds since the epoch.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from treefold.core.budget import Budget
from treefold.core.errors import RecordedError, TracedError
from treefold.core.fact import COLUMN, HIDDEN, UNCOMPARED, VERBATIM, Fact, Finite, force_setattr
from treefold.core.guards import Guards
from treefold.core.json_form import LIMIT, json_form
from treefold.core.question import Answer, Question
from treefold.core.states import NodeState

Moment = Annotated[float, COLUMN]  # in seconds since the epoch


class _OfNode(Fact, frozen=True):
    node: Annotated[int, COLUMN]


class Event(_OfNode, frozen=True, kw_only=True):
    """Something that happened to the call with the id *node*.

    Attributes:
        number: its position among the events of its tree, from 1; the same in every process that
            reads them from a journal. 0 before it is part of a tree.

    Example:
        >>> from treefold.events import CallStarted
        >>> event = CallStarted(7, 1767225600.0)
        >>> isinstance(event, Event), event.node
        (True, 7)
    """

    # What each class declares about its events.
    recorded: ClassVar[bool] = True  # whether a journal has them
    repeated: ClassVar[bool] = False  # whether they happen again whenever the tree is resumed
    new_state: ClassVar[NodeState | None] = None  # of the call, if they change it
    inward: ClassVar[bool] = False  # whether they change nothing for the calls below it

    number: Annotated[int, COLUMN, UNCOMPARED] = 0

    def to_json(self, *, limit: int | None = LIMIT) -> dict[str, Any]:
        """Return the event as JSON data; texts and values are cut after *limit* characters.

        docs/reference/events.md describes it.
        """
        return json_form(self, limit)


def set_number(event: Event, number: int) -> None:
    """Set the number of *event*, when it becomes part of a tree or is read from a journal."""
    force_setattr(event, "number", number)


def set_node(event: Event, node: int) -> None:
    """Set the call that *event* happened to, when it is read as an event of a fork."""
    force_setattr(event, "node", node)


class BudgetAbove(Fact, frozen=True):
    """A budget that a call spends of, and that belongs to a call above it or to the runtime."""

    name: str  # of its account in the store
    node: int | None  # whose it is; None: the runtime's
    budget: Budget
    # A tree of which a part was paid from it before its account was in the store, and what was
    # paid; 0 if that has not been counted yet.
    history: int = 0
    calls: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)


class CallOptions(Fact, frozen=True):
    """The options that a top-level or remote call was made with."""

    timeout: Finite | None = None
    model: str | None = None
    budget: Budget | None = None
    passing: bool = False  # only the process that made the call can continue it
    traceparent: str | None = None  # the span that was open where the call was made
    budgets_above: tuple[BudgetAbove, ...] = ()  # of a call that another worker runs
    guards: tuple[Guards, ...] = ()  # of a top-level call: its runtime's, then its client's
    deps: str = ""  # where its dependencies came from, such as "app:connect"; empty without any


class CallRequested(Event, frozen=True):
    """A call was requested; it waits to be started.

    Example:
        >>> from treefold.events import CallRequested
        >>> CallRequested(2, 1, 1, 1, "add", {"a": 1}, number=4).to_json()["inputs"]
        {'a': 1}
    """

    new_state: ClassVar = NodeState.Waiting

    parent: Annotated[int | None, COLUMN]
    index: Annotated[int, COLUMN]  # its position among its siblings, from 1
    sequence: int  # the number of the call; calls asked for in parallel share one
    function: Annotated[str, COLUMN]
    inputs: Mapping[str, Any]
    tool_use_id: str | None = None  # if a model asked for it
    options: CallOptions | None = None  # of a top-level or remote call
    # Identifies it among the calls of its parent.
    key: Annotated[str, COLUMN, HIDDEN] = ""
    gated: bool = False  # a gate has to allow it before it starts
    is_agent: Annotated[bool, COLUMN] = False
    continues: int | None = None  # the call of a failed tree that this call resumes
    queue: str = ""  # if any worker that serves this queue may run it, apart from its caller
    version: Annotated[str, VERBATIM] = ""  # of its function; empty if there is no journal
    at: Annotated[float | None, COLUMN, UNCOMPARED] = None
    description: str = ""  # the first line of its function's; empty if there is no journal


class TreeForked(Event, frozen=True):
    """A tree was forked: it shares the past of another tree, its source.

    Positions count the events of the source, and numbers its nodes in the order of their ids; both
    start at 1.

    Example:
        >>> from treefold.events import TreeForked
        >>> fork = TreeForked(
        ...     9, 1767225600.0, "#9", 2, "plan", is_agent=False, source=1, inherited=3, cut=8,
        ...     length=8, reopened=(1,),
        ... )
        >>> fork.source
        1
    """

    new_state: ClassVar = NodeState.Running

    at: Moment
    key: Annotated[str, COLUMN, HIDDEN]
    tree_number: Annotated[int, COLUMN]
    function: Annotated[str, COLUMN]
    is_agent: Annotated[bool, COLUMN]
    source: Annotated[int, COLUMN]  # the id of the source
    inherited: Annotated[int, COLUMN]  # how many nodes below the top-level one are shared
    cut: int  # the position of the last event that reopened nodes share
    length: int  # the position of the last event that is shared at all
    reopened: tuple[int, ...]  # the nodes that are open again, the top-level one first
    resumed: bool = False  # the fork resumes the source, and its calls are the same calls
    # For each of *reopened*, the position of the last child call that is shared. Empty: *cut*
    # applies to all of them.
    calls_until: tuple[int, ...] = ()
    uncancelled: tuple[int, ...] = ()  # nodes that are shared without their cancellation
    version: Annotated[str, VERBATIM] = ""  # of its function when the fork was made
    budget: Budget | None = None  # of its top-level call, instead of that of the source's


class CallInherited(Event, frozen=True):
    """A call of the source of a fork is open in the fork, too, or again.

    Example:
        >>> from treefold.events import CallInherited
        >>> CallInherited(9, 8, "add 1", 1, "add", is_agent=False).parent
        8
    """

    new_state: ClassVar = NodeState.Waiting

    parent: Annotated[int, COLUMN]
    key: Annotated[str, COLUMN, HIDDEN]
    index: Annotated[int, COLUMN]
    function: Annotated[str, COLUMN]
    is_agent: Annotated[bool, COLUMN]
    version: Annotated[str, VERBATIM] = ""  # of its function when the fork was made


class CallReopened(Event, frozen=True):
    """The call must run again: its recorded value cannot be restored.

    Example:
        >>> from treefold.events import CallReopened
        >>> CallReopened(2, 1767225600.0).node
        2
    """

    repeated: ClassVar = True
    new_state: ClassVar = NodeState.Running

    at: Moment


class AgentEdited(Event, frozen=True):
    """A fork changed the prompt, the model or the system prompt of the agent; None: it did not.

    Example:
        >>> from treefold.events import AgentEdited
        >>> AgentEdited(2, model="local").prompt is None
        True
    """

    prompt: str | None = None
    model: str | None = None
    system: str | None = None


class CallStarted(Event, frozen=True):
    """The call started to run.

    Example:
        >>> from treefold.events import CallStarted
        >>> CallStarted(2, 1767225600.0, deadline=1767229200.0).to_json()["deadline"]
        1767229200.0
    """

    repeated: ClassVar = True
    new_state: ClassVar = NodeState.Running

    at: Moment
    deadline: Finite | None = None  # when its timeout ends it, in any process
    gated: bool = False  # a gate has to allow it before its function runs


class CallAllowed(Event, frozen=True):
    """The gate of the call has allowed it.

    Example:
        >>> from treefold.events import CallAllowed
        >>> CallAllowed(2).node
        2
    """

    repeated: ClassVar = True


class ValueSent(Event, frozen=True):
    """The call sent a value before its end.

    Example:
        >>> from treefold.events import ValueSent
        >>> ValueSent(2, b"raw").to_json()["value"]
        {'$repr': "b'raw'"}
    """

    inward: ClassVar = True

    value: Any


class ArgumentsEdited(Event, frozen=True):
    """The call is made with other arguments than requested.

    Example:
        >>> from treefold.events import ArgumentsEdited
        >>> ArgumentsEdited(2, {"a": 2}).inputs
        {'a': 2}
    """

    inputs: Mapping[str, Any]


class CallPaused(Event, frozen=True):
    """The call was paused, or asked a question, and waits for a person.

    Example:
        >>> from treefold.events import CallPaused
        >>> CallPaused(2, 1767225600.0, "it was paused").reason
        'it was paused'
    """

    repeated: ClassVar = True
    new_state: ClassVar = NodeState.Paused

    at: Moment
    reason: str


class CallResumed(Event, frozen=True):
    """The call continues after a pause.

    Example:
        >>> from treefold.events import CallResumed
        >>> CallResumed(2, 1767225600.0).node
        2
    """

    repeated: ClassVar = True
    new_state: ClassVar = NodeState.Running

    at: Moment


class ProcessDied(Event, frozen=True):
    """The process died while the tree of this top-level call ran, and another resumes it.

    Example:
        >>> from treefold.events import ProcessDied
        >>> ProcessDied(1, 1767225600.0, deaths=2).deaths
        2
    """

    at: Moment
    deaths: int  # since the tree last made progress


class TreeResumed(Event, frozen=True):
    """Another process runs this top-level or remote call, and those below it, after a stop.

    If the process before died, there is a ``ProcessDied`` instead.

    Example:
        >>> from treefold.events import TreeResumed
        >>> TreeResumed(1, 1767225600.0).node
        1
    """

    repeated: ClassVar = True

    at: Moment


class TreeHeldBack(Event, frozen=True):
    """A process that opened the journal does not run this tree, because it lacks something.

    It is recorded once for each reason; a process that has what is missing resumes the tree.

    Example:
        >>> from treefold.events import TreeHeldBack
        >>> TreeHeldBack(1, "guarded by main:approve").why
        'guarded by main:approve'
    """

    repeated: ClassVar = True

    # It has no time: the clock of an interrupted tree stands at its last event before.
    why: str


class TreeImported(Event, frozen=True):
    """The tree came from a file: no process runs it until a person resumes it.

    ``import_tree`` adds it as the last event, so that nothing in the file can say otherwise.

    Example:
        >>> from treefold.events import TreeImported
        >>> TreeImported(1).to_json()["type"]
        'TreeImported'
    """


class ImportAccepted(Event, frozen=True):
    """A person resumed the imported tree, which runs from here on.

    Example:
        >>> from treefold.events import ImportAccepted
        >>> ImportAccepted(1, 1767225600.0).node
        1
    """

    at: Moment


class GuardsAdded(Event, frozen=True):
    """From here on these permissions bind the tree, too: those of a runtime that resumes it.

    Example:
        >>> from treefold.core.guards import Guards
        >>> from treefold.events import GuardsAdded
        >>> GuardsAdded(1, Guards(disallowed=("bash",))).guards.disallowed
        ('bash',)
    """

    guards: Guards


class GuardsLifted(Event, frozen=True):
    """A person decided that the tree continues without some of its guards.

    Attributes:
        names: hooks such as "main:approve", or "allowed_tools", "disallowed_tools", "budget".

    Example:
        >>> from treefold.events import GuardsLifted
        >>> GuardsLifted(1, 1767225600.0, ("main:approve",)).names
        ('main:approve',)
    """

    at: Moment
    names: Annotated[tuple[str, ...], VERBATIM]


class QuestionChanged(Event, frozen=True):
    """A question is pending from now on, as it is in this event."""

    at: Moment
    question: Question


class QuestionAsked(QuestionChanged, frozen=True):
    """The call asked a question and waits for a person to answer it, or sleeps.

    A sleep is a question to no person (``QuestionKind.Sleep``), which expires.

    Example:
        >>> from treefold.events import QuestionAsked
        >>> from treefold import Question, QuestionKind
        >>> question = Question(id="2-1", node_id=2, kind=QuestionKind.Human, text="Go on?")
        >>> QuestionAsked(2, 1767225600.0, question).to_json()["question"]
        {'id': '2-1', 'node': 2, 'kind': 'human', 'text': 'Go on?', 'choices': [], ...}
    """


class QuestionEscalated(QuestionChanged, frozen=True):
    """A question had no answer in time, and somebody else is asked; see its ``to``.

    Example:
        >>> from treefold.events import QuestionEscalated
        >>> from treefold import Question, QuestionKind
        >>> asked = Question(id="2-1", node_id=2, kind=QuestionKind.Human, text="?", to="team")
        >>> QuestionEscalated(2, 1767225600.0, asked).question.to
        'team'
    """


class QuestionNotified(QuestionChanged, frozen=True):
    """The ``notify`` of a runtime was called for a question.

    Example:
        >>> from treefold.events import QuestionNotified
        >>> from treefold import Question, QuestionKind
        >>> asked = Question(id="2-1", node_id=2, kind=QuestionKind.Human, text="Go on?")
        >>> QuestionNotified(2, 1767225600.0, asked).question.id
        '2-1'
    """


class QuestionSettled(Event, frozen=True):
    """A question was answered, or withdrawn (then *answer* is None).

    Example:
        >>> from treefold.events import QuestionSettled
        >>> QuestionSettled(2, 1767225600.0, "2-1", None).answer is None
        True
    """

    at: Moment
    id: str
    answer: Answer | None


class Failure(Fact, frozen=True):
    """The exception of a call, as data."""

    type: str
    message: str
    # Of the type.
    module: Annotated[str, HIDDEN, UNCOMPARED] = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Return the description of *error*, even if its ``__str__`` raises."""
        try:
            if isinstance(error, RecordedError):
                return cls(str(error.type), str(error.message))
            message = error.message if isinstance(error, TracedError) else str(error)
            # A class may say anything about its module.
            return cls(type(error).__name__, str(message), str(type(error).__module__))
        except Exception as fault:  # noqa: BLE001 - foreign code; the call must end nevertheless
            return cls(type(error).__name__, f"(its __str__ raised {type(fault).__name__})")

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class StopCause(StrEnum):
    """Why a call was stopped before its function returned or raised."""

    Timeout = "timeout"  # it took longer than its own timeout
    Budget = "budget"  # the seconds of a budget were over
    Cancelled = "cancelled"  # it was cancelled, or a call above it was
    Abandoned = "abandoned"  # its caller stopped waiting for it
    Unclaimed = "unclaimed"  # its caller, run again in a later process, did not make it again


class Stop(Fact, frozen=True):
    """How a call was stopped."""

    cause: StopCause
    reason: str  # for people
    path: str  # the path of the call when it was stopped; in a fork the call has another path


class CallEnded(Event, frozen=True):
    """The call reached a final state.

    Example:
        >>> from treefold.events import CallEnded
        >>> from treefold import NodeState
        >>> CallEnded(2, NodeState.Success, 1767225600.0, outputs=3).to_json()["outputs"]
        3
    """

    state: NodeState
    at: Moment
    outputs: Any = None
    exception: Failure | None = None
    stop: Stop | None = None  # if it was stopped
    given: bool = False  # the edit of a fork supplied the result; the function did not run
