"""Put the questions of a run to whoever sits at the terminal."""

import sys
from typing import Final

from ramify.cli.typed_lines import TypedLines
from ramify.core.errors import RamifyError
from ramify.core.question import Question, QuestionKind
from ramify.runtime.runtime import Runtime
from ramify.views.text import printable

_ELSEWHERE: Final = "(it is not asked any more: answered elsewhere, or cancelled)"


def ask_for_answers(runtime: Runtime, lines: TypedLines) -> bool:
    """Ask for the answer to each open question; False if there is nobody to ask any more."""
    asked = (question for question in runtime.questions() if _is_open(runtime, question))
    return all(_ask(runtime, question, lines) for question in asked)


def _ask(runtime: Runtime, question: Question, lines: TypedLines) -> bool:
    """Ask until *question* is answered, here or elsewhere; False if there is nobody to ask."""
    print(shown(question), file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = lines.read(lambda: _is_open(runtime, question))
        if line is None:
            print(f"\n{_ELSEWHERE}", file=sys.stderr)
            return True
        if not line:
            return False
        try:
            runtime.answer(question.id, line.strip())
        except KeyError:  # it is not open any more
            print(_ELSEWHERE, file=sys.stderr)
            return True
        except RamifyError as error:
            print(printable(str(error)), file=sys.stderr)
        else:
            return True


def _is_open(runtime: Runtime, question: Question) -> bool:
    return any(one.id == question.id for one in runtime.questions())


def shown(question: Question) -> str:
    """Return *question* as it is put to a person."""
    text = "\n".join(printable(line) for line in question.text.split("\n"))
    choices = f" [{' / '.join(map(printable, question.choices))}]" if question.choices else ""
    why = "" if question.kind is QuestionKind.Human else f"{question.kind}: "
    return f"? node {question.node_id}: {why}{text}{choices}"
