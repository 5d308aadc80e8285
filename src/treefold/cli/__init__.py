"""The ``treefold`` command. The module of a subcommand is loaded when the subcommand is used.

``commands`` lists the subcommands, ``options`` has what their modules share, ``exit_codes`` what
they return. ``journal`` finds the journal and the run that a command line names, ``loading`` loads
functions, ``output`` prints tables and JSON. ``chat`` is made of ``chat_loop`` (all of it),
``chat_turn`` (one prompt and its answer), ``chat_commands`` (lines that begin with a slash),
``chat_input``, ``chat_screen``, ``chat_file`` and ``model_choice``.
"""

import gc
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from treefold.cli.commands import COMMANDS, COMPLETION_VARIABLE, load_command, treefold
from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE
from treefold.cli.log_output import messages_printed
from treefold.core.errors import TreefoldError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with *argv*; return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        try:
            with messages_printed():
                return _run(args, owns_process=argv is None)
        finally:
            # Here a closed pipe can still be handled; when Python exits, it cannot.
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as ``head`` does
        _discard_output()
        return DONE
    except OSError as error:
        if error.filename is not None:  # then it was not about stdout
            raise
        _discard_output()
        print(f"treefold: the output cannot be written ({error.strerror})", file=sys.stderr)
        return FAILED


def _run(args: list[str], *, owns_process: bool) -> int:
    if instruction := os.environ.get(COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete  # noqa: PLC0415 - only shells need it

        return shell_complete(treefold, {}, "treefold", COMPLETION_VARIABLE, instruction)
    try:
        if owns_process:
            _load_without_collecting(args)
        return treefold.invoke(treefold.make_context("treefold", args))
    except click.exceptions.Exit as end:  # after --help or --version
        return end.exit_code
    except click.UsageError as error:
        return _explain(error)
    except TreefoldError as error:
        print(f"treefold {_command(args)}: {_readable(str(error))}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


def _command(args: list[str]) -> str:
    """Return the name of the command in *args*, which may begin with options."""
    return next((arg for arg in args if not arg.startswith("-")), "")


def _load_without_collecting(args: list[str]) -> None:
    """Import the command that *args* name, and exclude all imports from garbage collection.

    They live as long as the process, which is ours alone. Collections, the last of them when Python
    exits, would visit them again and again: a sixth of the time of ``treefold ps``.
    """
    gc.disable()
    try:
        if (name := _command(args)) in COMMANDS:
            load_command(name)
    finally:
        gc.freeze()
        gc.enable()


def _explain(error: click.UsageError) -> int:
    """Print what is wrong with the command line, and how the command is used."""
    path = "treefold"
    if error.ctx is not None:
        path = error.ctx.command_path
        print(error.ctx.get_usage(), file=sys.stderr)
    message = _readable(error.format_message())
    print(f"{path}: {message}\nTry '{path} --help'.", file=sys.stderr)
    return USAGE


def _readable(text: str) -> str:
    from treefold.views.text import readable  # noqa: PLC0415 - most commands print no error

    return readable(text)


def _prepare_streams() -> None:
    """Replace closed streams by the null device, and escape what an encoding cannot represent."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open until the end
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end
            setattr(sys, name, null)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Redirect stdout to the null device, so that Python does not fail to flush it at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    with suppress(io.UnsupportedOperation):  # stdout is not a file
        os.dup2(null, sys.stdout.fileno())
    os.close(null)
