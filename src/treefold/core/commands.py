"""Commands that other processes post for the one that runs a tree: one JSON object per message."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import field

from treefold.core.budget import Budget
from treefold.core.errors import InvalidValueError
from treefold.core.events import StopCause
from treefold.core.fact import Fact, decode, tag_of
from treefold.core.said import When
from treefold.core.truncation import truncated_repr

Names = tuple[str, ...]


class AnswerQuestion(Fact, frozen=True, tag_field="do", tag="answer"):
    """Answer a question; *args* are edited arguments.

    The answer is recorded with its *token*, by which its sender knows that it was taken.
    """

    id: str
    text: str
    args: Mapping[str, Any] | None = None
    token: str = ""

    @property
    def key(self) -> str:
        """What a refusal names it by."""
        return f"#answer {self.id}"


class ExpireQuestion(Fact, frozen=True, tag_field="do", tag="expire"):
    """Let a question expire, because its time has come."""

    id: str


class ClaimQuestion(Fact, frozen=True, tag_field="do", tag="claim"):
    """The process that runs the call is answering this question itself."""

    id: str
    by: str


class CancelCall(Fact, frozen=True, tag_field="do", tag="cancel"):
    """Cancel a call, and all below it."""

    node: int
    reason: str
    cause: StopCause = StopCause.Cancelled


class PauseCall(Fact, frozen=True, tag_field="do", tag="pause"):
    """Pause a call, and all below it."""

    node: int
    reason: str
    id: str = ""  # the question that it asks has it, so that it asks once

    @property
    def key(self) -> str:
        """What a refusal names it by."""
        return f"#pause {self.id}"


class ResumeCall(Fact, frozen=True, tag_field="do", tag="resume"):
    """Resume what is paused in a call, or a tree that failed or is held back.

    What is meant depends on what the sender saw. Without *ended*, a call that has ended meanwhile
    stays as it is: a pause, a resume and a cancellation that arrive together must not end in a fork
    that does the work once more. What is paused later than the sender looked stays paused.

    Attributes:
        without: guards that a person leaves off.
        ended: the sender saw that it had ended: it is to continue in a fork.
        paused: the questions that the sender saw, and the pauses that were posted by then.
    """

    node: int
    budget: Budget | None = None
    without: Names = ()
    ended: bool = False
    paused: Names = ()
    id: str = ""

    @property
    def key(self) -> str:
        """What a refusal names it by."""
        return f"#resume {self.id}"


class SayToCall(Fact, frozen=True, tag_field="do", tag="say"):
    """Say something to an agent that runs; its *id* makes it said once."""

    node: int
    text: str
    when: When
    id: str

    @property
    def key(self) -> str:
        """What a refusal names it by."""
        return f"#say {self.id}"


class ForkTree(Fact, frozen=True, tag_field="do", tag="fork"):
    """Fork a tree at a call; *edit* is what ``edit_of`` reads."""

    node: int
    key: str  # of the fork
    at: int | None = None
    edit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    without: Names = ()


Command: TypeAlias = (
    AnswerQuestion
    | ExpireQuestion
    | ClaimQuestion
    | CancelCall
    | PauseCall
    | ResumeCall
    | SayToCall
    | ForkTree
)


def read_command(body: str) -> Command:
    """Return the command in the body of a message.

    Raises:
        InvalidValueError: it is none.
    """
    try:
        return decode(body, cast("type[Command]", Command))
    except (ValueError, RecursionError) as error:
        shown = truncated_repr(body, 100)
        raise InvalidValueError(f"{shown} is not a command: {error}") from None


def write_command(command: Command, what: str = "a command") -> str:
    """Return the body of a message with *command*.

    Raises:
        InvalidValueError: it cannot be read again; the message names *what*.
    """
    fields = {"do": tag_of(type(command)), **msgspec.structs.asdict(command)}
    try:
        # Unlike msgspec, the json module does not make lists of sets, or texts of times.
        body = json.dumps(fields, default=_plain)
        # The driver can only drop what is not a command, and its sender would not hear of it.
        read_command(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"{what} has to be JSON: {error}") from error
    return body


def _plain(value: Any) -> Any:
    if isinstance(value, Fact):
        return msgspec.to_builtins(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# A command that cannot be executed is refused in a broadcast, by its key.


class Refusal(Fact, frozen=True):
    """The command with the key *refused* was not executed."""

    refused: str
    why: str


def refusals_in(lines: Iterable[str]) -> dict[str, str]:
    """Return the refused commands in the broadcasts of a driver: their keys, and why."""
    found: dict[str, str] = {}
    for line in lines:
        with suppress(msgspec.MsgspecError):
            refusal = decode(line, Refusal)
            found[refusal.refused] = refusal.why
    return found
