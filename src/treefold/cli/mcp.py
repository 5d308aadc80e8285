"""``treefold mcp``: serve functions to programs that speak the Model Context Protocol."""

import argparse
import asyncio
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final, TextIO

from treefold.cli.exit_codes import INTERRUPTED, TERMINATED, USAGE
from treefold.cli.loading import MODEL_HELP, load_functions
from treefold.core.errors import TreefoldError
from treefold.core.function import Function
from treefold.http_server.tokens import checked_token, new_token
from treefold.mcp.serving import ServingRuntime, serve
from treefold.mcp.stdio import Stdio, take_over_stdio
from treefold.views.text import printable

TOKEN_VARIABLE: Final = "TREEFOLD_MCP_TOKEN"


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "mcp",
        description="Serve functions, agents included, as the tools of an MCP server, over stdin\n"
        "and stdout or HTTP.",
        epilog=(
            "example: treefold mcp examples/survey.py:survey --http 8000\n\n"
            "Of a module, all public functions are served that it did not import. What they\n"
            "print goes to stderr. When a client cancels a call, or goes, all that the call\n"
            "started ends. A function that asks a person has the client ask, if it can be asked\n"
            "while a call runs (elicitation, before protocol 2026-07-28), or the call fails.\n\n"
            "Over HTTP, each request needs the header 'Authorization: Bearer TOKEN'. The token is\n"
            f"that of the environment variable {TOKEN_VARIABLE}, at least 16 characters; if\n"
            "it is not set, a new one is made and printed. A client is given it as a header:\n"
            '  {"url": "http://127.0.0.1:8000/mcp", "headers": {"Authorization": "Bearer ..."}}\n'
            '  McpServer("http://127.0.0.1:8000/mcp", headers={"Authorization": "Bearer ..."})\n\n'
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
        help="let other machines reach --http; they need the token, and nothing is encrypted",
    )
    parser.add_argument("--model", metavar="NAME", help=MODEL_HELP)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Serve what *options* name."""
    printed: TextIO = sys.stdout
    if isinstance(printed, io.TextIOWrapper):
        printed.reconfigure(line_buffering=True)  # it goes where people follow it
    with nullcontext() if options.http else take_over_stdio() as stdio:  # imports may print
        try:
            token = _token() if options.http else None
            functions = load_functions(options.targets)
            return asyncio.run(_serve(functions, options, stdio, token))
        except TreefoldError as error:
            print(f"treefold mcp: {printable(str(error))}", file=sys.stderr)
            return USAGE
        except KeyboardInterrupt:
            return INTERRUPTED


def _token() -> "_Token":
    """Return the token that clients need; programs that are started here do not inherit it."""
    if given := os.environ.pop(TOKEN_VARIABLE, ""):
        return _Token(checked_token(given, TOKEN_VARIABLE), is_new=False)
    return _Token(new_token(), is_new=True)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_new: bool


async def _serve(
    functions: Sequence[Function],
    options: argparse.Namespace,
    stdio: Stdio | None,
    token: _Token | None,
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
    ready = partial(_say_so, functions, options, token)
    try:
        async with ServingRuntime(functions, models=options.model) as runtime:
            await serve(
                functions,
                runtime=runtime,
                http=options.http,
                token=None if token is None else token.text,
                allow_remote=options.allow_remote,
                stdio=stdio,
                on_ready=ready,
            )
    except asyncio.CancelledError:
        if not terminated:
            raise
        return TERMINATED
    return 0


def _say_so(
    functions: Sequence[Function],
    options: argparse.Namespace,
    token: _Token | None,
    address: str,
) -> None:
    names = ", ".join(function.name for function in functions)
    lines = [f"serving {names} ({address})"]
    if token is not None:
        shown = token.text if token.is_new else f"${TOKEN_VARIABLE}"
        lines.append(f"clients send the header Authorization: Bearer {shown}")
    if options.allow_remote:
        lines.append(
            "other machines can reach this address. Nothing is encrypted: anyone who can read the"
            " traffic has the token, and may call these functions"
        )
    for line in lines:
        print(f"treefold mcp: {line}", file=sys.stderr, flush=True)
