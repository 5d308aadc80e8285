"""The ``treefold`` command: a file for each subcommand, loaded when that one is used.

``commands`` lists them, ``exit_codes`` says what they return, and ``journal`` finds the journal and
the run that a command line names; ``loading`` finds functions. Behind ``chat`` stand ``chatting``
(the whole of it), ``talk`` (one prompt and its answer), ``chat_commands`` (lines that begin with a
slash), ``screen`` and ``line_reader`` (the two sides of the terminal) and ``model_choice``.
"""

import argparse
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from treefold.cli.commands import COMMANDS, GROUPS, Command
from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE
from treefold.core.errors import TreefoldError
from treefold.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with *argv*; return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    _escape_log()
    try:
        try:
            return _run(given)
        finally:
            sys.stdout.flush()  # now, when it can still be heard that nobody reads it
    except BrokenPipeError:  # whoever reads has had enough, as ``head`` has
        _write_no_more()
        return DONE
    except OSError as error:
        if error.filename is not None:  # then it was not about what is printed
            raise
        _write_no_more()
        print(f"treefold: what it says cannot be written ({error.strerror})", file=sys.stderr)
        return FAILED


def parser_of(command: Command) -> argparse.ArgumentParser:
    """Return what reads the command line of *command*; its module is loaded for that."""
    made: dict[str, argparse.ArgumentParser] = {}

    def add_parser(name: str, **options: Any) -> argparse.ArgumentParser:
        made[name] = argparse.ArgumentParser(prog=f"treefold {name}", **options)
        return made[name]

    add_to: Callable[[Callable[..., argparse.ArgumentParser]], None]
    add_to = import_module(f"treefold.cli.{command.module}").add_to
    add_to(add_parser)
    return made[command.name]


def _run(given: Sequence[str]) -> int:
    name, rest = (given[0], given[1:]) if given else ("", ())
    if name not in COMMANDS:
        return _explain(name)
    try:
        options = parser_of(COMMANDS[name]).parse_args(rest)
        return options.command(options)
    except TreefoldError as error:
        from treefold.views.text import readable  # noqa: PLC0415 - only who fails needs it

        print(f"treefold {name}: {readable(str(error))}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _explain(name: str) -> int:
    """Say what there is instead of the command *name*."""
    parser = _parser()
    if name.startswith("-"):
        parser.parse_args([name])  # which is the end if it is --help or --version
    said = f"there is no command {name!r}" if name.strip("-") else "say which command"
    near = _nearest(name)
    said += f"; did you mean {near!r}?" if near else "; 'treefold --help' lists them"
    parser.print_usage(sys.stderr)
    print(f"treefold: {said}", file=sys.stderr)
    return USAGE


def _nearest(name: str) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - only who mistypes needs it

    return next(iter(get_close_matches(name, COMMANDS, n=1)), None)


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    groups = (
        f"{title}:\n" + "\n".join(f"    {one.name:{width}}  {one.help}" for one in group)
        for title, group in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="treefold",
        usage="treefold [-h] [--version] COMMAND ...",
        description="Agents are functions, and every run is a tree.",
        epilog="\n\n".join([*groups, "'treefold COMMAND --help' shows an example of each."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"treefold {__version__}")
    return parser


def _escape_log() -> None:
    """Have what is logged shown escaped: it may say what a tool or a model has said."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Escaping())


class _Escaping(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        from treefold.views.text import readable  # noqa: PLC0415 - most have nothing to say

        return readable(super().format(record))


def _prepare_streams() -> None:
    if sys.stdin is None:  # it was closed; there is nothing to be read
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - to the end
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed; what is printed goes nowhere
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end
        elif isinstance(stream, io.TextIOWrapper):  # what it cannot show is shown as a code
            stream.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """Let what is still to be printed go nowhere, so that Python's end does not fail over it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(io.UnsupportedOperation):  # it is no file
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
