"""Read prompts and answers from the terminal or from a pipe."""

import asyncio
import io
import sys

from treefold.cli.input_history import InputHistory

_CONTINUATION_PROMPT = "... "
_CONTINUED = "\\"


class LineReader:
    """Reads prompts, one or more lines each, and answers to questions.

    Prompts are read while no event loop runs, with line editing where it is available; Ctrl-C is
    then a KeyboardInterrupt. Answers are read while the turn that asks is running.
    """

    def __init__(self) -> None:
        self.at_terminal = sys.stdin.isatty()
        typed: object = sys.stdin
        if isinstance(typed, io.TextIOWrapper):
            typed.reconfigure(errors="replace")
        edits = self.at_terminal and sys.stdout.isatty()
        self._history = InputHistory() if edits else None

    def read(self, prompt: str) -> str | None:
        """Return the next prompt; None at the end of the input."""
        lines: list[str] = []
        while True:
            line = self._line(_CONTINUATION_PROMPT if lines else prompt)
            if line is None:
                return "\n".join(lines) if lines else None
            if not line.endswith(_CONTINUED):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix(_CONTINUED))

    async def answer(self, prompt: str) -> str | None:
        """Return the next line, which is not saved; None at the end of the input."""
        if self.at_terminal:
            _discard_typed_ahead()  # it was not meant as an answer
        print(prompt, end="", file=sys.stderr, flush=True)
        if self.at_terminal:
            await _until_typed()
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    def _line(self, prompt: str) -> str | None:
        if self._history is None:
            if self.at_terminal:  # stdout is a file or a pipe
                print(prompt, end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        try:
            line = input(prompt)
        except EOFError:
            print(file=sys.stderr)
            return None
        self._history.add(line)
        return line


def _discard_typed_ahead() -> None:
    if sys.platform != "win32":
        import termios  # noqa: PLC0415 - not on Windows

        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _until_typed() -> None:
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    try:
        loop.add_reader(sys.stdin, typed.set)
    except NotImplementedError:  # on Windows, where reading blocks the loop
        return
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
