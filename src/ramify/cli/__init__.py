"""The ``ramify`` command: ``run``, ``chat``, ``mcp`` and ``local`` are a subcommand each.

Behind ``chat`` stand ``chatting`` (the whole of it), ``talk`` (one prompt and its answer),
``chat_commands`` (lines that begin with a slash), ``screen`` and ``line_reader`` (the two sides of
the terminal) and ``model_choice``. ``loading`` finds the functions that any command line names.
"""

import argparse
import io
import sys
from collections.abc import Sequence

from ramify.cli import chat, local, mcp, run
from ramify.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with *argv*; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="ramify", description="Agents are functions, and every run is a tree."
    )
    parser.add_argument("--version", action="version", version=f"ramify {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    run.add_to(commands.add_parser)
    chat.add_to(commands.add_parser)
    mcp.add_to(commands.add_parser)
    local.add_to(commands.add_parser)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot show is better shown as a code
            stream.reconfigure(errors="backslashreplace")
    options = parser.parse_args(argv)
    return options.command(options)
