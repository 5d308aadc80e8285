"""Put the questions of a run to whoever sits at the terminal."""

import sys

from ramify.core.errors import RamifyError
from ramify.core.question import Question, QuestionKind
from ramify.runtime.runtime import Runtime
from ramify.views.text import printable


def ask_for_answers(runtime: Runtime) -> bool:
    """Ask for the answer to each open question; False if there is nobody to ask any more."""
    for question in runtime.questions():
        print(shown(question), file=sys.stderr)
        while True:
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                return False
            try:
                runtime.answer(question.id, line.strip())
            except KeyError:  # it is not open any more
                break
            except RamifyError as error:
                print(printable(str(error)), file=sys.stderr)
            else:
                break
    return True


def shown(question: Question) -> str:
    """Return *question* as it is put to a person."""
    text = "\n".join(printable(line) for line in question.text.split("\n"))
    choices = f" [{' / '.join(map(printable, question.choices))}]" if question.choices else ""
    why = "" if question.kind is QuestionKind.Human else f"{question.kind}: "
    return f"? node {question.node_id}: {why}{text}{choices}"
