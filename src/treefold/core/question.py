"""Questions, which wait for a person, and their answers."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Any, Final, cast

from msgspec import field

from treefold.core.answer_form import checked_value
from treefold.core.budget import amounts_in, as_text
from treefold.core.errors import InvalidValueError, UnknownQuestionError
from treefold.core.fact import HIDDEN, UNCOMPARED, VERBATIM, Fact, Finite, replace
from treefold.core.json_form import LIMIT, json_form
from treefold.core.plain import to_plain

RESUME: Final = "resume"
CANCEL: Final = "cancel"
REPORT: Final = "report"
ALLOW: Final = "allow"
DENY: Final = "deny"
RETRY: Final = "retry"
USE: Final = "use"
FAIL: Final = "fail"

# Words that mean the same as a choice.
_SAYING_YES: Final = frozenset({ALLOW, "yes", "y"})
_SAYING_NO: Final = frozenset({DENY, "no", "n"})
LISTED: Final = 20  # ids of questions in a message
_MOST_DIGITS: Final = 18  # of an id; as many always fit into 64 bits


class QuestionKind(StrEnum):
    """Why a person has to answer.

    Example:
        >>> from treefold import QuestionKind
        >>> QuestionKind("approval").name
        'Approval'
    """

    Human = "human"  # a function asks
    Approval = "approval"  # a call needs the approval of a person
    InDoubt = "in_doubt"  # it is not known whether a call was done
    Paused = "paused"  # a call was paused, and waits to be resumed
    Budget = "budget"  # a request does not fit into a budget, and waits for a larger one
    Sleep = "sleep"  # a call sleeps: no person is asked, and time answers


class Escalation(Fact, frozen=True):
    """Who is asked instead, if a question has no answer at this time."""

    at: Finite  # in seconds since the epoch
    to: str


class Question(Fact, frozen=True, kw_only=True):
    """A question for a person, for which a call waits; see ``runtime.answer(question.id, ...)``.

    Attributes:
        node_id: the call that waits.
        kind: why a person has to answer.
        choices: the possible answers; if empty, any text is an answer, unless there is a *form*.
        form: the JSON Schema of the answer, which is given as JSON.
        default: the answer, as text, when the question expires; None if there is none.
        expires: when it does, in seconds since the epoch.
        to: who is asked, a name of your own.
        escalations: who is asked later, in the order of time.
        key: identifies the question among those of its call, also after a restart.
        command: the id of the command by which another process has paused the call.
        notified: whether ``Runtime(notify=...)`` was called for it.
        deadline: when the call that asks, or one above it, is stopped.

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
    node_id: int = field(name="node")
    kind: QuestionKind
    text: str
    choices: tuple[str, ...] = ()
    form: Mapping[str, Any] | None = None
    default: str | None = None
    expires: Finite | None = None
    to: str = ""
    escalations: tuple[Escalation, ...] = ()
    key: Annotated[str, HIDDEN, UNCOMPARED, VERBATIM] = ""
    command: Annotated[str, HIDDEN, UNCOMPARED, VERBATIM] = ""
    notified: Annotated[bool, HIDDEN, UNCOMPARED] = False
    deadline: Annotated[Finite | None, HIDDEN, UNCOMPARED] = None

    @property
    def changes_at(self) -> float | None:
        """When it expires or is escalated."""
        times = [self.expires, *(one.at for one in self.escalations[:1])]
        return min([at for at in times if at is not None], default=None)

    @property
    def due(self) -> float | None:
        """When the call that asks has to run, although there is no answer."""
        times = (self.changes_at, self.deadline)
        return min([at for at in times if at is not None], default=None)

    @property
    def asks_people(self) -> bool:
        """Whether a person may answer it."""
        return self.kind is not QuestionKind.Sleep

    def redacted(self, redact: Callable[[str], str]) -> "Question":
        """Return the question with *redact* applied to its texts."""
        return replace(
            self,
            text=redact(self.text),
            choices=tuple(map(redact, self.choices)),
            form=None if self.form is None else _redacted_data(self.form, redact),
            default=None if self.default is None else redact(self.default),
        )

    def to_json(self, *, limit: int | None = LIMIT) -> dict[str, Any]:
        """Return the question as JSON data; texts are cut after *limit* characters."""
        return json_form(self, limit)

    def has_key(self, kind: QuestionKind, key: str) -> bool:
        """Whether this is the question with this *kind* and *key*."""
        return self.kind is kind and self.key == key

    def checked(self, text: Any, args: Mapping[str, Any] | None = None) -> "Answer":
        """Return *text* and *args* as an Answer to this question.

        If the question has a form, *text* may be any value that has a JSON form.

        Raises:
            InvalidValueError: they are not a possible answer; the message lists the choices.
        """
        if self.form is not None and args is None:
            return Answer(self._filled(self.form, text))
        if (
            not isinstance(text, str)
            or not isinstance(args, Mapping | None)
            or not all(isinstance(name, str) for name in args or ())
        ):
            raise InvalidValueError(
                f"the answer to a question must be a str, and args a mapping of names or None, got"
                f" {text!r} and {args!r}"
            )
        if self.kind is QuestionKind.Approval:
            return self._approval(text, args)
        if args is not None:
            raise InvalidValueError(f"a question of the kind {self.kind} takes no arguments")
        if self.kind is QuestionKind.Budget:
            word = text.strip().casefold()
            return Answer(CANCEL if word == CANCEL else as_text(amounts_in(text)))
        if self.kind is QuestionKind.InDoubt:
            word, colon, rest = text.partition(":")
            if (choice := self._choice(word, text)) == USE and not colon:
                raise InvalidValueError(
                    f"{text!r} does not answer the question: say which result, 'use: RESULT',"
                    " or 'retry' or 'fail'"
                )
            return Answer(choice, rest.strip())
        return Answer(self._choice(text, text) if self.choices else text)

    def _filled(self, form: Mapping[str, Any], value: Any) -> str:
        """Return a value that fits *form*, as JSON text."""
        plain = value if isinstance(value, str) else to_plain(value, "the answer")
        return checked_value(form, plain, "that does not answer the question")

    def _approval(self, text: str, args: Mapping[str, Any] | None) -> "Answer":
        word, _, why = text.partition(":")
        if args is None:
            return Answer(self._choice(word, text), why.strip())
        if self._choice(word.strip() or ALLOW, text) != ALLOW:
            raise self._unsuitable(text)
        return Answer(ALLOW, args=dict(args))

    def _choice(self, word: str, text: str) -> str:
        """Return the choice that *word* names, ignoring case and surrounding spaces.

        If no choice is spelt so, yes, y and allow mean the same, and so do no, n and deny.
        """
        word = word.strip().casefold()
        spelt = {choice.strip().casefold(): choice for choice in self.choices}
        if word in spelt:
            return spelt[word]
        for same in (_SAYING_YES, _SAYING_NO):
            found = [choice for key, choice in spelt.items() if key in same]
            if word in same and len(found) == 1:
                return found[0]
        raise self._unsuitable(text)

    def _unsuitable(self, text: str) -> InvalidValueError:
        choices = ", ".join(map(repr, self.choices))
        more = ", or edited arguments" if self.kind is QuestionKind.Approval else ""
        return InvalidValueError(f"{text!r} does not answer the question: {choices}{more}")


class Answer(Fact, frozen=True):
    """The answer to a question."""

    text: str
    reason: str = ""  # the text after the choice and a colon
    args: Mapping[str, Any] | None = None  # edited arguments
    expired: bool = False  # no person answered in time; *text* is the default, if there was one
    token: Annotated[str, HIDDEN, UNCOMPARED, VERBATIM] = ""  # of the command with it


class QuestionKey(StrEnum):
    """The keys of the questions that treefold itself asks; for others, see ``key_of``."""

    InDoubt = "in_doubt"  # whether an interrupted call was done
    Crashes = "crashes"  # the process died repeatedly while the tree ran
    Request = "request"  # a request to a model failed
    ToolCall = "tool_call"  # a call that a model asked for failed
    Hold = "hold"  # a person paused a call
    Journal = "journal"  # the journal cannot be written
    NewCode = "new_code"  # the function of an open call has changed
    Budget = "budget"  # a request does not fit into a budget


def key_of(text: str) -> str:
    """Return the key of a question that a function or a hook asks with this *text*."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _redacted_data(data: Any, redact: Callable[[str], str]) -> Any:
    """Return JSON data with *redact* applied to its texts."""
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, Mapping):
        items = cast("Mapping[str, Any]", data).items()
        return {name: _redacted_data(value, redact) for name, value in items}
    if isinstance(data, list):
        return [_redacted_data(value, redact) for value in cast("list[Any]", data)]
    return data


def asking_node(id: str) -> int | None:
    """Return the call that asks the question with this id; None if it cannot be such an id."""
    node = id.partition("-")[0]
    is_id = node.isascii() and node.isdigit() and len(node) <= _MOST_DIGITS
    return int(node) if is_id else None


def unknown_question(id: str, known: Sequence[str]) -> UnknownQuestionError:
    """Return the error that no question with this *id* is open, but those with these ids are."""
    more = ", ..." if len(known) > LISTED else ""
    return UnknownQuestionError(
        f"no question {id!r} waits for an answer (it may have been answered already);"
        f" open: {', '.join(known[:LISTED]) or 'none'}{more}"
    )


def ends_pause(question: Question, answer: Answer) -> bool:
    """Whether *answer* cancels a paused call."""
    return question.kind is QuestionKind.Paused and answer.text == CANCEL
