"""Every fact about a call, named in the past tense.

A tree is a fold over these, a journal is a list of them, and a view reads them and nothing else.
Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, dataclass_transform

from treefold.core.budget import Budget
from treefold.core.errors import RecordedError, TracedError
from treefold.core.question import Answer, Question
from treefold.core.states import NodeState

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fact(cls: type[T]) -> type[T]:
    """Make a dataclass that the type checker holds to be frozen.

    At run time it is not: each call makes three, and a frozen one takes four times as long to make.
    """
    return dataclass(slots=True)(cls)


@fact
class Event:
    """Something that happened to the call with this id."""

    node: int


@fact
class CallOptions:
    """How a top-level call is to be made, if anything was said of that."""

    timeout: float | None = None
    model: str | None = None
    budget: Budget | None = None
    passing: bool = False  # it means nothing without the program that made it


@fact
class CallRequested(Event):
    """Somebody asked for a call; it waits to be run."""

    parent: int | None
    index: int  # its place among its siblings, from 1
    sequence: int  # the number of the call; calls asked for in parallel share one
    function: str
    inputs: Mapping[str, Any]
    tool_use_id: str | None = None  # if a model asked for it
    options: CallOptions | None = None  # of a top-level call
    key: str = ""  # what a journal finds it by among the calls of its parent
    gated: bool = False  # something has to let it pass before it begins
    is_agent: bool = False
    continues: int | None = None  # the call of a tree that was resumed which goes on in this one


@fact
class TreeForked(Event):
    """A tree goes on from where another was.

    Places are counted from 1 in the events of that other tree, nodes in the order of their ids.
    """

    at: float
    key: str
    number: int  # of the tree
    function: str
    is_agent: bool
    source: int  # the other tree
    inherited: int  # how many nodes below the top-level one are shared
    cut: int  # the last place of which those nodes know that are open again
    length: int  # the last place that is shared at all
    reopened: tuple[int, ...]  # the nodes that are open again, the top-level one first
    resumed: bool = False  # the other tree goes on in it, and its calls are the same calls
    # For each of *reopened*, the last place at which a call of it is shared; none: *cut* for all.
    calls_until: tuple[int, ...] = ()
    uncancelled: tuple[int, ...] = ()  # nodes that are shared without their cancellation


@fact
class CallInherited(Event):
    """The call is open in a fork, too, or again."""

    parent: int
    key: str
    index: int
    function: str
    is_agent: bool


@fact
class CallReopened(Event):
    """The call is to give a value once more: the one that it gave cannot be had any longer."""

    at: float


@fact
class AgentEdited(Event):
    """The agent is told something else than it was, or asks another model."""

    prompt: str | None = None
    model: str | None = None


@fact
class CallStarted(Event):
    """The call began to run."""

    at: float


@fact
class CallAllowed(Event):
    """What stood before the call has let it pass."""


@fact
class ValueSent(Event):
    """The call gave out a value before its end."""

    value: Any


@fact
class ArgumentsEdited(Event):
    """The call is made with other arguments than were asked for."""

    inputs: Mapping[str, Any]


@fact
class CallPaused(Event):
    """The call was stopped, or asks something, and waits for a person."""

    at: float
    reason: str


@fact
class CallResumed(Event):
    """The call goes on."""

    at: float


@fact
class ProcessDied(Event):
    """The process died while the tree of this top-level call ran, and another resumes it."""

    at: float
    deaths: int  # since the tree last made progress


@fact
class QuestionAsked(Event):
    """A person is to say something."""

    at: float
    question: Question


@fact
class QuestionSettled(Event):
    """A question was answered, or is no longer to be answered."""

    at: float
    id: str
    answer: Answer | None


@fact
class Failure:
    """What a call raised, as data."""

    type: str
    message: str
    module: str = field(default="", compare=False, repr=False)  # of the type

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe *error*, even if it cannot describe itself."""
        if isinstance(error, RecordedError):
            return cls(error.type, error.message)
        try:
            message = error.message if isinstance(error, TracedError) else str(error)
            return cls(type(error).__name__, message, type(error).__module__)
        except Exception as fault:  # noqa: BLE001 - foreign code; the call has to end all the same
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


@fact
class Stop:
    """How a call was stopped."""

    cause: StopCause
    reason: str  # for people
    path: str  # the path of the call when it was stopped; a fork that shares the call has another


@fact
class CallEnded(Event):
    """The call reached its last state."""

    state: NodeState
    at: float
    outputs: Any = None
    exception: Failure | None = None
    stop: Stop | None = None  # if it was stopped
    given: bool = False  # the result was supplied by the edit of a fork; the function did not run
