"""Find the question that a command line answers."""

import shlex
import sys
from collections.abc import Sequence
from typing import Final

from treefold.cli.asking_call import AskingCall, table_of
from treefold.cli.form_prompt import fill_in, from_assignments
from treefold.core.answer_form import fields_of
from treefold.core.errors import InvalidValueError, UnknownQuestionError
from treefold.core.question import Question
from treefold.runtime.observe.observer import Observer

_MOST_WORDS: Final = 2
_USAGE: Final = "treefold answer ID TEXT"


def find_question(
    observer: Observer, words: Sequence[str], *, has_args: bool
) -> tuple[Question, str]:
    """Return the open question that *words* answer, and the text of the answer.

    The words are an id and a text, or one of them: the id can be left out if one question is open,
    and the text if the answer *has_args*.

    The fields of a form may be given as words, ``city=Rome nights=3``. If nothing is given for a
    form and a person is there, the fields are asked for.

    Raises:
        InvalidValueError: the answer is missing, or it could be for several questions.
        UnknownQuestionError: there is no such question.
    """
    if (filled := _find_form(observer, words)) is not None:
        return filled
    if len(words) > _MOST_WORDS:
        quoted = shlex.quote(" ".join(words[1:]))
        raise InvalidValueError(
            f"too many words: put an answer of several in quotes, treefold answer ID {quoted}"
        )
    found = observer.questions()
    if len(words) == _MOST_WORDS:
        return _with_id(observer, found, words[0]), words[1]
    ids = {one.id: one for one in found}
    if words and words[0] in ids:
        if not has_args:
            raise InvalidValueError(f"the answer to question {words[0]} is missing: {_USAGE}")
        return ids[words[0]], ""
    if not words and not has_args:
        raise InvalidValueError(f"the answer is missing: {_USAGE}")
    return _only(observer, found, *words), "".join(words)


def _find_form(observer: Observer, words: Sequence[str]) -> tuple[Question, str] | None:
    """Return the question whose form *words* fill in, or a person does, and the answer as JSON."""
    found = observer.questions()
    by_id = [one for one in found if words and one.id == words[0]]
    question, rest = (by_id[0], words[1:]) if by_id else (None, words)
    if question is None and len(found) == 1:
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


def _with_id(observer: Observer, found: Sequence[Question], id: str) -> Question:
    """Return the question with this id, or the only one of that node, or with that beginning."""
    several: list[Question] = []
    for beginning in (f"{id}-", id):
        several = [one for one in found if one.id.startswith(beginning)]
        fitting = [one for one in several if one.id == id] or several
        if len(fitting) == 1:
            return fitting[0]
    what = f"no question {id!r} waits for an answer (it may have been answered already)"
    if several:
        what = f"{len(several)} questions have an id that begins with {id!r}"
    listed = f"\n{_listed(observer, several or found)}" if found else " none"
    raise UnknownQuestionError(f"{what}; open:{listed}")


def _only(observer: Observer, found: Sequence[Question], text: str = "") -> Question:
    if not found:
        raise UnknownQuestionError("no question waits for an answer")
    if len(found) > 1:
        example = shlex.join(["treefold", "answer", found[0].id, *([text] if text else [])])
        raise InvalidValueError(
            f"{len(found)} questions are open: say which one by its id, such as {example}\n"
            f"{_listed(observer, found)}"
        )
    return found[0]


def _listed(observer: Observer, found: Sequence[Question]) -> str:
    calls = [AskingCall.of(one, observer.stack) for one in found]
    return "\n".join(table_of(calls, sys.stderr))
