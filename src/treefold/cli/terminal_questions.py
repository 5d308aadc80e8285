"""Put the questions of a run to the user at the terminal, or to a pipe."""

import os
import select
import stat
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from treefold.core.errors import TreefoldError
from treefold.core.question import Question, QuestionKind
from treefold.core.views import NodeView
from treefold.runtime.runtime import Runtime
from treefold.views.terminal import Prompt
from treefold.views.text import printable

_CLOSED: Final = "(no longer open: it was answered elsewhere, or cancelled)"
_POLL_INTERVAL: Final = 0.1  # seconds


class StdinLines:
    """Reads lines from stdin; a line that is abandoned half typed begins the next one."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def read(self, is_wanted: Callable[[], bool]) -> str | None:
        """Return the next line, empty at the end of the input; None once *is_wanted* is false."""
        if not _can_wait():
            return sys.stdin.readline()
        while is_wanted():
            if not select.select([sys.stdin], [], [], _POLL_INTERVAL)[0]:
                continue
            byte = _next_byte()
            self._begun += byte
            if byte in {b"", b"\n"}:
                line = self._begun.decode(sys.stdin.encoding, "replace")
                self._begun.clear()
                return line
        return None


def _next_byte() -> bytes:
    """Read one byte, none at the end of the input; the rest is left for other readers."""
    try:
        return os.read(sys.stdin.fileno(), 1)
    except OSError:  # the terminal is gone
        return b""


def _can_wait() -> bool:
    """Return whether stdin can be polled: it is a terminal, a pipe or a socket."""
    if sys.platform == "win32":
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):  # it has no file descriptor
        return False
    return sys.stdin.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def ask_for_answers(
    runtime: Runtime, lines: StdinLines, prompt: Prompt, view: Callable[[], NodeView]
) -> bool:
    """Ask for the answer to each open question; return False at the end of the input.

    The tree above the question is redrawn meanwhile, from what *view* returns.
    """
    asked = (question for question in runtime.questions() if _is_open(runtime, question))

    def is_wanted(question: Question) -> bool:
        prompt.update_tree(view)
        return _is_open(runtime, question)

    return all(_ask(runtime, one, lines, prompt, partial(is_wanted, one)) for one in asked)


def _ask(
    runtime: Runtime,
    question: Question,
    lines: StdinLines,
    prompt: Prompt,
    is_wanted: Callable[[], bool],
) -> bool:
    """Ask until *question* is answered, here or elsewhere; return False at the end of the input."""
    prompt.print(question_text(question))
    while True:
        with prompt.line_input("> "):
            line = lines.read(is_wanted)
            if line is None:
                prompt.end_line()
        if line is None:
            prompt.print(_CLOSED)
            return True
        if not line:
            return False
        try:
            runtime.answer(question.id, line.strip())
        except KeyError:  # it was closed meanwhile
            prompt.print(_CLOSED)
            return True
        except TreefoldError as error:
            prompt.print(printable(str(error)))
        else:
            return True


def _is_open(runtime: Runtime, question: Question) -> bool:
    return any(one.id == question.id for one in runtime.questions())


def question_text(question: Question) -> str:
    """Return the text with which *question* is put to a person."""
    text = "\n".join(printable(line) for line in question.text.split("\n"))
    choices = f" [{' / '.join(map(printable, question.choices))}]" if question.choices else ""
    why = "" if question.kind is QuestionKind.Human else f"{question.kind}: "
    return f"? node {question.node_id}: {why}{text}{choices}"
