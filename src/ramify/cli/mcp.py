"""``ramify mcp``: serve functions to programs that speak the Model Context Protocol."""

import argparse
import asyncio
import io
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TextIO

from ramify.cli.exit_codes import INTERRUPTED, TERMINATED, USAGE
from ramify.cli.loading import MODEL_HELP, load_functions
from ramify.core.errors import RamifyError
from ramify.core.function import Function
from ramify.mcp.serving import ServingRuntime, serve
from ramify.mcp.stdio import Stdio, own_stdio
from ramify.views.text import printable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "mcp",
        description="Serve functions, agents included, as the tools of an MCP server, over stdin\n"
        "and stdout or HTTP.",
        epilog=(
            "example: ramify mcp examples/survey.py:survey --http 8000\n\n"
            "Of a module, all public functions are served that it did not import. What they\n"
            "print goes to stderr. When a client cancels a call, or goes, all that the call\n"
            "started ends. A function that asks a person has the client ask, if it can be asked\n"
            "while a call runs (elicitation, before protocol 2026-07-28), or the call fails.\n\n"
            "exit codes: 0 the client has gone, 2 nothing was served, 130 it was interrupted,\n"
            "143 it was terminated"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "targets",
        metavar="MODULE[:FUNCTION]",
        nargs="+",
        help="a module or a .py file, and a name in it if not all are to be served",
    )
    parser.add_argument(
        "--http",
        metavar="[HOST:]PORT",
        help="serve streamable HTTP at /mcp; port 0 takes any that is free",
    )
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help="let other machines reach --http; whoever can may call everything",
    )
    parser.add_argument("--model", metavar="NAME", help=MODEL_HELP)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve what *options* name."""
    printed: TextIO = sys.stdout
    if isinstance(printed, io.TextIOWrapper):
        printed.reconfigure(line_buffering=True)  # it goes where people follow it
    with nullcontext() if options.http else own_stdio() as stdio:  # imports may print
        try:
            functions = load_functions(options.targets)
            return asyncio.run(_serve(functions, options, stdio))
        except RamifyError as error:
            print(f"ramify mcp: {printable(str(error))}", file=sys.stderr)
            return USAGE
        except KeyboardInterrupt:
            return INTERRUPTED


async def _serve(
    functions: Sequence[Function], options: argparse.Namespace, stdio: Stdio | None
) -> int:
    task = asyncio.current_task()
    assert task is not None  # this is a coroutine
    loop = asyncio.get_running_loop()
    terminated: list[bool] = []

    def terminate() -> None:
        terminated.append(True)
        task.cancel()

    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, terminate)
    ready = partial(_say_so, functions, options)
    try:
        async with ServingRuntime(functions, models=options.model) as runtime:
            await serve(
                functions,
                runtime=runtime,
                http=options.http,
                allow_remote=options.allow_remote,
                stdio=stdio,
                on_ready=ready,
            )
    except asyncio.CancelledError:
        if not terminated:
            raise
        return TERMINATED
    return 0


def _say_so(functions: Sequence[Function], options: argparse.Namespace, address: str) -> None:
    names = ", ".join(function.name for function in functions)
    print(f"ramify mcp: serving {names} ({address})", file=sys.stderr, flush=True)
    if options.allow_remote:
        print(
            "ramify mcp: whoever can reach this address may call these functions, without a"
            " password",
            file=sys.stderr,
            flush=True,
        )
