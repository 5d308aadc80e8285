"""``treefold mcp``: serve functions to clients of the Model Context Protocol."""

import asyncio
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, TextIO

import click

from treefold.cli.exit_codes import DONE, INTERRUPTED, TERMINATED, USAGE
from treefold.cli.loading import MODEL_HELP, TARGET, load_functions, load_model
from treefold.cli.options import FILE, command
from treefold.cli.runtime_options import (
    RuntimeOptions,
    runtime_options,
)
from treefold.core.errors import TreefoldError
from treefold.core.function import Function
from treefold.http_server.tokens import checked_token, new_token
from treefold.mcp.serving import ServingRuntime, serve
from treefold.mcp.stdio import Stdio, take_over_stdio
from treefold.runtime.runtime import Runtime
from treefold.views.text import printable

TOKEN_VARIABLE: Final = "TREEFOLD_MCP_TOKEN"


@command(
    "mcp",
    exit_codes="0 the client has disconnected, 2 nothing was served, 130 it was interrupted,\n"
    "143 it was terminated",
)
@click.argument(
    "targets",
    type=TARGET,
    metavar="MODULE[:FUNCTION]...",
    nargs=-1,
    required=True,
    help="a module or a .py file, and a name in it to serve only that function, or a Runtime",
)
@click.option(
    "--http", metavar="[HOST:]PORT", help="serve streamable HTTP at /mcp; port 0 takes any free one"
)
@click.option(
    "--allow-remote",
    is_flag=True,
    help="let other machines connect to --http; they need the token, and nothing is encrypted",
)
@click.option("--model", metavar="NAME", help=MODEL_HELP)
@click.option(
    "--store",
    type=FILE,
    metavar="FILE",
    help="write a journal of the calls there, and resume what is unfinished in it",
)
@runtime_options
def mcp(
    targets: tuple[str, ...],
    http: str | None,
    model: str | None,
    store: str | None,
    *,
    allow_remote: bool,
    **deciding: Any,
) -> int:
    """Serve functions, agents included, as the tools of an MCP server, over stdio or HTTP.

    example: treefold mcp examples/survey.py:survey --http 8000

    All public functions that a module did not import are served. What they print goes to stderr.
    When a client cancels a call, or disconnects, everything that the call started ends. A function
    that asks a person asks through the client, if the client can be asked during a call
    (elicitation, before protocol 2026-07-28); otherwise the call fails, or with --store waits for
    'treefold answer'. With --store, 'treefold ps' and 'treefold tree' show what clients have
    called, also while it runs.

    Over HTTP, each request needs the header 'Authorization: Bearer TOKEN'. The token is the value
    of the environment variable TREEFOLD_MCP_TOKEN, at least 16 characters; if it is not set, a new
    one is generated and printed. Clients are configured with it as a header:
      {"url": "http://127.0.0.1:8000/mcp", "headers": {"Authorization": "Bearer ..."}}
      McpServer("http://127.0.0.1:8000/mcp", headers={"Authorization": "Bearer ..."})
    """
    printed: TextIO = sys.stdout
    if isinstance(printed, io.TextIOWrapper):
        printed.reconfigure(line_buffering=True)  # people may follow it in a log
    # Stdio is taken over before the modules are imported: they may print, too.
    with nullcontext() if http else take_over_stdio() as stdio:
        try:
            token = _token() if http else None
            decides = RuntimeOptions(**deciding)
            program = decides.named_runtime(targets, {"--model": model, "--store": store})
            if program is None:
                functions = load_functions(targets)
                # Without a journal, a tree that has ended cannot be read.
                kind = ServingRuntime if store is None else Runtime
                made = decides.make(functions, load_model(model), kind=kind, store=store)
            else:
                functions, made = list(program.invocable_functions.values()), program
            server = _Server(functions, http, token, allow_remote=allow_remote)
            return asyncio.run(server.serve(made, stdio))
        except TreefoldError as error:
            print(f"treefold mcp: {printable(str(error))}", file=sys.stderr)
            return USAGE
        except KeyboardInterrupt:
            return INTERRUPTED


def _token() -> "_Token":
    """Return the token that clients need, and remove it from the environment of subprocesses."""
    if given := os.environ.pop(TOKEN_VARIABLE, ""):
        return _Token(checked_token(given, TOKEN_VARIABLE), is_new=False)
    return _Token(new_token(), is_new=True)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_new: bool


class _Server:
    def __init__(
        self,
        functions: Sequence[Function],
        http: str | None,
        token: _Token | None,
        *,
        allow_remote: bool,
    ) -> None:
        self._functions = functions
        self._http = http
        self._token = token
        self._allow_remote = allow_remote

    async def serve(self, runtime: Runtime, stdio: Stdio | None) -> int:
        """Serve until the client disconnects or SIGTERM comes; return the exit code."""
        task = asyncio.current_task()
        assert task is not None  # a coroutine always runs in a task
        loop = asyncio.get_running_loop()
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        if sys.platform != "win32":
            loop.add_signal_handler(signal.SIGTERM, terminate)
        try:
            async with runtime:
                await serve(
                    self._functions,
                    runtime=runtime,
                    http=self._http,
                    token=None if self._token is None else self._token.text,
                    allow_remote=self._allow_remote,
                    stdio=stdio,
                    on_ready=self._announce,
                )
        except asyncio.CancelledError:
            if not terminated:
                raise
            return TERMINATED
        return DONE

    def _announce(self, address: str) -> None:
        names = ", ".join(function.name for function in self._functions)
        lines = [f"serving {names} ({address})"]
        if self._token is not None:
            shown = self._token.text if self._token.is_new else f"${TOKEN_VARIABLE}"
            lines.append(f"clients send the header Authorization: Bearer {shown}")
        if self._allow_remote:
            lines.append(
                "other machines can reach this address. Nothing is encrypted: anyone who can read"
                " the traffic has the token, and may call these functions"
            )
        for line in lines:
            print(f"treefold mcp: {line}", file=sys.stderr, flush=True)
