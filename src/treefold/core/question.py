"""Whatever waits for a person, as one thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from treefold.core.errors import InvalidValueError

RESUME: Final = "resume"
CANCEL: Final = "cancel"
REPORT: Final = "report"
ALLOW: Final = "allow"
DENY: Final = "deny"
RETRY: Final = "retry"
USE: Final = "use"
FAIL: Final = "fail"


class QuestionKind(StrEnum):
    """Why somebody has to say something.

    Example:
        >>> from treefold import QuestionKind
        >>> QuestionKind("approval").name
        'Approval'
    """

    Human = "human"  # a function asks
    Approval = "approval"  # a call may only be made if somebody allows it
    InDoubt = "in_doubt"  # nobody knows whether a call was made
    Paused = "paused"  # a call was stopped, and waits to go on


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that a call waits to be told; ``runtime.answer(question.id, ...)`` tells it.

    Attributes:
        node_id: the call that waits.
        choices: the answers there are; any text will do if there are none.
        key: identifies the question among those of its call, also after a restart.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> async def deploy(ctx) -> str:
        ...     return await ctx.ask("Deploy?", ["yes", "no"])
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=deploy))
        ...     while not (questions := runtime.questions()):
        ...         pass
        ...     runtime.answer(questions[0].id, "yes")
        ...     questions[0].text, node.result()
        ('Deploy?', 'yes')
    """

    id: str
    node_id: int
    kind: QuestionKind
    text: str
    choices: tuple[str, ...] = ()
    key: str = field(default="", compare=False, repr=False)

    def has_key(self, kind: QuestionKind, key: str) -> bool:
        """Whether a question of this *kind* with this *key* is the same one, asked again."""
        # Journals of version 1 do not say which of several failed tool calls a question is about.
        return self.kind is kind and self.key in {key, key.partition(":")[0]}

    def checked(self, text: str, args: Mapping[str, Any] | None = None) -> "Answer":
        """Return what was said as an answer to this.

        Raises:
            InvalidValueError: it answers something else; the message lists the choices.
        """
        if not isinstance(text, str) or not isinstance(args, Mapping | None):
            raise InvalidValueError(f"question {self.id} wants text, not {text!r} {args!r}")
        if self.kind is QuestionKind.Approval:
            return self._approval(text, args)
        if args is not None:
            raise InvalidValueError(f"question {self.id} ({self.kind}) takes no arguments")
        if self.kind is QuestionKind.InDoubt:
            word, colon, rest = text.partition(":")
            if (choice := self._choice(word, text)) == USE and not colon:
                raise InvalidValueError(
                    f"{text!r} does not answer question {self.id}: say which result, 'use: RESULT',"
                    " or 'retry' or 'fail'"
                )
            return Answer(choice, rest.strip())
        return Answer(self._choice(text, text) if self.choices else text)

    def _approval(self, text: str, args: Mapping[str, Any] | None) -> "Answer":
        word, _, why = text.partition(":")
        if args is None:
            return Answer(self._choice(word, text), why.strip())
        if self._choice(word.strip() or ALLOW, text) != ALLOW:
            raise self._unsuitable(text)
        return Answer(ALLOW, args=dict(args))

    def _choice(self, word: str, text: str) -> str:
        """Return the choice that *word* is, however it is written."""
        for choice in self.choices:
            if word.strip().casefold() == choice.strip().casefold():
                return choice
        raise self._unsuitable(text)

    def _unsuitable(self, text: str) -> InvalidValueError:
        choices = ", ".join(map(repr, self.choices))
        more = ", or edited arguments" if self.kind is QuestionKind.Approval else ""
        return InvalidValueError(f"{text!r} does not answer question {self.id}: {choices}{more}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody said."""

    text: str
    reason: str = ""  # what was said after the choice
    args: Mapping[str, Any] | None = None  # the arguments to use instead


class QuestionKey(StrEnum):
    """The keys of the questions that treefold itself asks; a function's are keyed by their text."""

    InDoubt = "in_doubt"  # whether a call that was cut off was done
    Crashes = "crashes"  # a tree during which the process died again and again
    Request = "request"  # a request to a model that failed
    ToolCall = "tool_call"  # a call that failed which a model asked for
    Hold = "hold"  # a call that a person paused
    Journal = "journal"  # a journal that cannot be written


def key_of(text: str) -> str:
    """Return the key of a question that a function or a hook asks with this *text*."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def ends_pause(question: Question, answer: Answer) -> bool:
    """Whether somebody has said that a paused call is not to go on."""
    return question.kind is QuestionKind.Paused and answer.text == CANCEL
