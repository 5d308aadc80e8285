"""Put the questions of a run to the user at the terminal, or to a pipe."""

import os
import select
import stat
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from treefold.cli.asking_call import AskingCall
from treefold.cli.form_prompt import fill_in
from treefold.core.answer_form import fields_of
from treefold.core.errors import TreefoldError, UnknownNodeError
from treefold.core.question import Question
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

    def read(
        self, is_wanted: Callable[[], bool], on_idle: Callable[[], None] = lambda: None
    ) -> str | None:
        """Return the next line, empty at the end of the input; None once *is_wanted* is false.

        *on_idle* is called now and then while nothing is typed.
        """
        if not _can_wait():
            return sys.stdin.readline()
        while is_wanted():
            if not _can_read(0):
                on_idle()
                if not _can_read(_POLL_INTERVAL):
                    continue
            byte = _next_byte()
            self._begun += byte
            if byte in {b"", b"\n"}:
                line = self._begun.decode(sys.stdin.encoding, "replace")
                self._begun.clear()
                return line
        return None


def _can_read(timeout: float) -> bool:
    return bool(select.select([sys.stdin], [], [], timeout)[0])


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

    # The end of a line moves the cursor before the line is read, so the tree is drawn only if
    # nothing has been typed.
    def redraw() -> None:
        prompt.update_tree(view)

    return all(_ask(runtime, one, lines, prompt, redraw) for one in asked)


def _ask(
    runtime: Runtime,
    question: Question,
    lines: StdinLines,
    prompt: Prompt,
    redraw: Callable[[], None],
) -> bool:
    """Ask until *question* is answered, here or elsewhere; return False at the end of the input."""
    try:
        prompt.print("\n".join(AskingCall.of(question, runtime.stack).lines("? ")))
    except UnknownNodeError:  # its run was deleted
        return True
    is_over = False  # the end of the input

    def read(text: str) -> str | None:
        nonlocal is_over
        with prompt.line_input(text):
            line = lines.read(partial(_is_open, runtime, question), redraw)
            if line is None:
                prompt.end_line()
        is_over = line == ""
        return line or None

    while True:
        has_fields = question.form is not None and bool(fields_of(question.form))
        answer = fill_in(question, read, prompt.print) if has_fields else read("> ")
        if is_over:
            return False
        if answer is None:
            prompt.print(_CLOSED)
            return True
        try:
            runtime.answer(question.id, answer.strip())
        except KeyError:  # it was closed meanwhile
            prompt.print(_CLOSED)
            return True
        except TreefoldError as error:
            prompt.print(printable(str(error)))
        else:
            return True


def _is_open(runtime: Runtime, question: Question) -> bool:
    return any(one.id == question.id for one in runtime.questions())
