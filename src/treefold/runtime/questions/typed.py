"""Questions of functions: for a text or for a value of a type, with a default and a time limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from treefold.core.answer_type import AnswerType
from treefold.core.errors import InvalidValueError, QuestionExpiredError
from treefold.core.fact import replace
from treefold.core.function import NO_DEFAULT
from treefold.core.moments import moment_of
from treefold.core.question import Escalation, Question, QuestionKind
from treefold.core.truncation import truncated_repr
from treefold.runtime.calls.node import CallNode
from treefold.runtime.questions.ask import new_question, put


@dataclass(frozen=True, slots=True)
class Terms:
    """What a function says about a question, besides what it asks."""

    default: Any
    expires: float | timedelta | datetime | None
    to: str
    escalate: Mapping[str, float | timedelta | datetime]

    @property
    def has_default(self) -> bool:
        """Whether there is an answer for the case that no person gives one."""
        return self.default is not NO_DEFAULT

    def added_to(self, question: Question, default: str | None, now: float) -> Question:
        """Return *question* with these terms; *default* is the default as text."""
        if not isinstance(self.to, str) or not all(isinstance(who, str) for who in self.escalate):
            raise InvalidValueError(
                f"people are named by strings: to='anna', escalate={{'team': 3600}}, got"
                f" {self.to!r} and {self.escalate!r}"
            )
        later = [
            Escalation(moment_of(when, f"when {who} is asked", now), who)
            for who, when in self.escalate.items()
        ]
        expires = None if self.expires is None else moment_of(self.expires, "the expiry", now)
        return replace(
            question,
            default=default,
            expires=expires,
            to=self.to,
            escalations=tuple(sorted(later, key=lambda one: one.at)),
        )

    def expired(self, text: str) -> Any:
        """Return the answer to a question that no person has answered in time.

        Raises:
            QuestionExpiredError: there is no default.
        """
        if self.has_default:
            return self.default
        raise QuestionExpiredError(
            f"nobody answered {truncated_repr(text, 100)} in time; give a default=, or a later"
            " expires="
        )


async def ask_text(node: CallNode, text: str, choices: Sequence[str], terms: Terms) -> str:
    """Ask a person for a text, or for one of *choices*."""
    if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
        raise InvalidValueError(
            f"a question must be a string and its choices a list of strings, got {text!r} and"
            f" {choices!r}"
        )
    question = new_question(node, QuestionKind.Human, text, choices)
    default = question.checked(terms.default).text if terms.has_default else None
    answer = await put(node, terms.added_to(question, default, node.tree.now()))
    return terms.expired(text) if answer.expired else answer.text


async def ask_for(node: CallNode, annotation: Any, text: str, terms: Terms) -> Any:
    """Ask a person for a value of the type *annotation*."""
    if not isinstance(text, str):
        raise InvalidValueError(
            f"a question is asked with a type and a text, ask({annotation!r}, 'How many?'), got"
            f" {text!r}"
        )
    kind = AnswerType[Any](annotation)
    default = kind.write(terms.default) if terms.has_default else None
    question = new_question(node, QuestionKind.Human, text, kind.choices)
    question = terms.added_to(replace(question, form=kind.form), default, node.tree.now())
    asked = question
    while True:
        answer = await put(node, asked, kind.read)
        if answer.expired:
            return terms.expired(text)
        try:
            return kind.read(answer.text)
        except InvalidValueError as error:
            # It was given while no process had the type.
            asked = replace(question, text=f"{text} ({error})")
