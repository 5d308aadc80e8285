"""Put the questions of a run to whoever sits at the terminal."""

from collections.abc import Callable
from functools import partial
from typing import Final

from treefold.cli.typed_lines import TypedLines
from treefold.core.errors import TreefoldError
from treefold.core.question import Question, QuestionKind
from treefold.core.views import NodeView
from treefold.runtime.runtime import Runtime
from treefold.views.terminal import Prompt
from treefold.views.text import printable

_ELSEWHERE: Final = "(it is not asked any more: answered elsewhere, or cancelled)"


def ask_for_answers(
    runtime: Runtime, lines: TypedLines, prompt: Prompt, view: Callable[[], NodeView]
) -> bool:
    """Ask for the answer to each open question; False if there is nobody to ask any more.

    The tree above goes on moving meanwhile, as *view* gives it.
    """
    asked = (question for question in runtime.questions() if _is_open(runtime, question))

    def is_wanted(question: Question) -> bool:
        prompt.update_tree(view)
        return _is_open(runtime, question)

    return all(_ask(runtime, one, lines, prompt, partial(is_wanted, one)) for one in asked)


def _ask(
    runtime: Runtime,
    question: Question,
    lines: TypedLines,
    prompt: Prompt,
    is_wanted: Callable[[], bool],
) -> bool:
    """Ask until *question* is answered, here or elsewhere; False if there is nobody to ask."""
    prompt.print(shown(question))
    while True:
        with prompt.line_input("> "):
            line = lines.read(is_wanted)
            if line is None:
                prompt.end_line()
        if line is None:
            prompt.print(_ELSEWHERE)
            return True
        if not line:
            return False
        try:
            runtime.answer(question.id, line.strip())
        except KeyError:  # it is not open any more
            prompt.print(_ELSEWHERE)
            return True
        except TreefoldError as error:
            prompt.print(printable(str(error)))
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
