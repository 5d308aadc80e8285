"""Find the question that a command line answers."""

import re
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from treefold.cli.asking_call import AskingCall, table_of
from treefold.cli.form_prompt import fill_in, from_assignments
from treefold.cli.journal import node_id
from treefold.core.answer_form import fields_of
from treefold.core.errors import InvalidValueError, UnknownNodeError, UnknownQuestionError
from treefold.core.question import Question, asking_node
from treefold.runtime.observe.observer import Observer

_MOST_WORDS: Final = 2
_MOST_LISTED: Final = 20  # open questions in a message
_USAGE: Final = "treefold answer CALL TEXT"
_ID: Final = re.compile(r"[0-9]+-[0-9]+")  # of a question, which programs have
_ADDRESS: Final = re.compile(r"([0-9][0-9.]*)(?::([0-9]+))?")


def find_question(
    observer: Observer, words: Sequence[str], *, has_args: bool
) -> tuple[Question, str]:
    """Return the open question that *words* answer, and the text of the answer.

    The words are a call and a text, or one of them: the call can be left out if one question is
    open, and the text if the answer *has_args*.

    The fields of a form may be given as words, ``city=Rome nights=3``. If nothing is given for a
    form and a person is there, the fields are asked for.

    Raises:
        InvalidValueError: the answer is missing, or it could be for several questions.
        UnknownNodeError: there is no such call.
        UnknownQuestionError: there is no such question.
    """
    if (filled := _find_form(observer, words)) is not None:
        return filled
    if len(words) > _MOST_WORDS:
        quoted = shlex.quote(" ".join(words[1:]))
        raise InvalidValueError(
            f"too many words: put an answer of several in quotes, treefold answer CALL {quoted}"
        )
    if len(words) == _MOST_WORDS:
        return _of_call(observer, words[0]), words[1]
    if words and (named := _named(observer, words[0])):
        if not has_args:
            call = words[0]
            raise InvalidValueError(
                f"{call} is the call that asks, and the answer is missing: {_USAGE}; if the answer"
                f" is {call}, treefold answer {call} {call}"
            )
        return named[0], ""
    if not words and not has_args:
        raise InvalidValueError(f"the answer is missing: {_USAGE}")
    return _only(observer, *words), "".join(words)


def _find_form(observer: Observer, words: Sequence[str]) -> tuple[Question, str] | None:
    """Return the question whose form *words* fill in, or a person does, and the answer as JSON."""
    named = _named(observer, words[0]) if words else []
    question, rest = (named[0], words[1:]) if len(named) == 1 else (None, words)
    if question is None and len(found := observer.questions(limit=2)) == 1:
        question = found[0]
    if question is None or question.form is None:
        return None
    if rest:
        text = from_assignments(question, rest)
    elif not fields_of(question.form) or not sys.stdin.isatty():
        return None
    else:
        print("\n".join(AskingCall.of(question, observer.stack).lines("? ")), file=sys.stderr)
        text = fill_in(question, _read_line, lambda said: print(said, file=sys.stderr))
    return None if text is None else (question, text)


def _read_line(prompt: str) -> str | None:
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline() or None


def _named(observer: Observer, word: str) -> list[Question]:
    """Return the open questions that *word* names; none if it names no call."""
    if not (_ID.fullmatch(word) or _ADDRESS.fullmatch(word)):
        return []
    try:
        return _matching(observer, word)
    except UnknownNodeError:
        return []


def _matching(observer: Observer, word: str) -> list[Question]:
    """Return the open questions of the call that *word* names, or the one that it names.

    Raises:
        UnknownNodeError: there is no such call.
    """
    if _ID.fullmatch(word):
        asked = observer.questions(node=asking_node(word) or 0)
        return [one for one in asked if one.id == word]
    address = _ADDRESS.fullmatch(word)
    call, number = (word, None) if address is None else address.groups()
    node = node_id(observer, call)
    asked = observer.questions(node=node)
    return asked if number is None else [one for one in asked if one.id == f"{node}-{number}"]


def _of_call(observer: Observer, word: str) -> Question:
    several = _matching(observer, word)
    if len(several) == 1:
        return several[0]
    what = f"no question of {word} waits for an answer (it may have been answered already)"
    if several:
        what = f"{len(several)} questions of {word} wait for an answer"
    found = several or observer.questions(limit=_MOST_LISTED + 1)
    listed = f"\n{_listed(observer, found)}" if found else " none"
    raise UnknownQuestionError(f"{what}; open:{listed}")


def _only(observer: Observer, text: str = "") -> Question:
    found = observer.questions(limit=_MOST_LISTED + 1)
    if not found:
        raise UnknownQuestionError("no question waits for an answer")
    if len(found) > 1:
        first = AskingCall.of(found[0], observer.stack).address
        example = shlex.join(["treefold", "answer", first, *([text] if text else [])])
        count = f"{_MOST_LISTED} and more" if len(found) > _MOST_LISTED else str(len(found))
        raise InvalidValueError(
            f"{count} questions are open: say which call is answered, such as {example}\n"
            f"{_listed(observer, found)}"
        )
    return found[0]


def _listed(observer: Observer, found: Sequence[Question]) -> str:
    calls = [AskingCall.of(one, observer.stack) for one in found[:_MOST_LISTED]]
    more = ["and more: treefold questions"] if len(found) > _MOST_LISTED else []
    return "\n".join([*table_of(calls, sys.stderr), *more])
