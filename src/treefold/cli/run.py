"""``treefold run``: call a function and watch the tree grow."""

import asyncio
import json
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from treefold.cli.browser import open_page
from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE
from treefold.cli.function_options import FunctionCommand, read_options
from treefold.cli.loading import (
    MODEL_HELP,
    TARGET,
    is_in_file,
    load_function,
    load_model,
)
from treefold.cli.log_output import messages_held
from treefold.cli.options import FILE, command, read_value
from treefold.cli.runtime_options import (
    RuntimeOptions,
    runtime_options,
)
from treefold.cli.terminal_questions import StdinLines, ask_for_answers
from treefold.core.errors import (
    HeldBackError,
    InvalidArgumentsError,
    InvalidValueError,
    NoModelError,
    TracedError,
    TreefoldError,
)
from treefold.core.events import Failure
from treefold.core.frames import agent_traceback
from treefold.core.function import Function, Node
from treefold.core.model import Model
from treefold.runtime.runtime import Runtime
from treefold.stores.memory_store import MemoryStore
from treefold.stores.urls import public_name
from treefold.views.terminal import TICK, LiveTree
from treefold.views.text import printable
from treefold.views.web import server

_FOR_QUESTIONS = 8  # rows of the screen below the tree
_RESUMED = (
    "==> resuming this run of an earlier process (run {run}): {done} of its calls are done,"
    " {open} {verb} running"
)
_ANSWER_ELSEWHERE = "treefold run: stdin has ended; answer with 'treefold answer' or in the viewer"
_LEFT = "the same command resumes it, from {store}"


@command(
    "run",
    exit_codes="0 it returned, 1 it raised, 2 it was not called, 130 it was interrupted,\n"
    "143 it was terminated",
    kind=FunctionCommand,
    ignore_unknown_options=True,
)
@click.argument(
    "target",
    type=TARGET,
    metavar="MODULE:FUNCTION",
    help="a module or a .py file, and a name in it",
)
@click.argument(
    "options",
    metavar="[--NAME VALUE]...",
    nargs=-1,
    type=click.UNPROCESSED,
    help="the arguments of the function",
)
@click.option(
    "--arg",
    "arguments",
    metavar="NAME=VALUE",
    multiple=True,
    help="an argument; its value is JSON, or text if it is not JSON; may be repeated",
)
@click.option("--model", metavar="NAME", help=f"{MODEL_HELP}; auto asks which of those found here")
@click.option("--local", is_flag=True, help="the embedded model, which needs no key or server")
@click.option(
    "--store",
    type=FILE,
    metavar="FILE|URL",
    help="write a journal there, and resume what is unfinished in it",
)
@click.option("--key", metavar="KEY", help="make this call once: the same key finds it again")
@click.option(
    "--detach", is_flag=True, help="submit it to the workers of --store URL, and return at once"
)
@click.option("--queue", metavar="NAME", help="with --detach: only workers of this queue run it")
@click.option("--engine", metavar="NAME", help="with --detach: as for 'treefold worker'")
@click.option("--view", is_flag=True, help="show it in a browser, too, while it runs")
@runtime_options
@click.pass_context
def run(  # noqa: PLR0913 - options, each passed by name
    ctx: click.Context,
    *,
    target: str,
    options: tuple[str, ...],
    arguments: tuple[str, ...],
    model: str | None,
    store: str | None,
    key: str | None,
    queue: str | None,
    engine: str | None,
    local: bool,
    detach: bool,
    view: bool,
    **deciding: Any,
) -> int:
    """Call a function, watch the tree grow, and print what the function returned.

    example: treefold run examples/survey.py:survey --folder src/treefold/core

    'treefold run MODULE:FUNCTION --help' shows the arguments of a function. A text is written as it
    is, and everything else as JSON: --count 3 --names '["a", "b"]'. An argument that is called like
    an option of this command is given as --arg NAME=VALUE.

    Questions that a function asks are put to you on the terminal; an answer is one line. With
    --store, a run that was interrupted or killed resumes when the same command is given again: what
    was done is not done twice.

    Agents that name no model use that of --model or --local; otherwise that of the unfinished run,
    or the one that TREEFOLD_MODEL (with TREEFOLD_BASE_URL, if that is set) names. If there is none,
    they fail, and the error lists the keys and servers found here.

    With --detach, 'treefold worker' runs the call, with the model of the worker unless --model is
    given. The number of the run is printed, by which 'treefold tree' and 'treefold answer' find it.
    """
    try:
        decides = RuntimeOptions(**deciding)
        own = {"--model": model, "--store": store, "--local": local, "--detach": detach}
        program = decides.named_runtime([target], own)
        function, options = _function(target, program, options)
        args = dict(map(_argument, arguments)) | read_options(ctx.command, function, options)
        _check(function, args, arguments)
        if detach and view:
            raise InvalidValueError("--view is for a run of this process: use 'treefold view'")
        if detach:
            from treefold.cli.detached import Place, submit  # noqa: PLC0415 - needs an engine

            model = "local" if local else model
            place = Place(store, key, queue, engine, model)
            return submit(function, args, decides, place)
        if queue or engine:
            option = "--queue" if queue else "--engine"
            raise InvalidValueError(f"{option} is for --detach, which has workers run the call")
        runtime = program or decides.make(
            [function],
            _choose_model(model, store, function, args, embedded=local),
            store=store or (MemoryStore() if view else None),
        )
    except TreefoldError as error:
        print(f"treefold run: {error}", file=sys.stderr)
        return USAGE
    journal = None if runtime.store is None or view else runtime.store.name
    left = None if journal is None else _LEFT.format(store=public_name(journal))
    with _shown_in_browser(runtime) if view else nullcontext():
        return show(
            runtime,
            lambda: _unfinished(runtime, function, args) or runtime.invoke(function, args, key=key),
            command="run",
            left=left,
        )


def _function(
    target: str, program: Runtime | None, words: tuple[str, ...]
) -> tuple[Function, tuple[str, ...]]:
    """Return the function that a command line names, and the *words* that are its arguments.

    Raises:
        InvalidValueError: it names none.
    """
    if program is None:
        return load_function(target), words
    known = program.invocable_functions
    if not words or words[0] not in known:
        named = f"no function {words[0]!r}" if words else "several functions"
        raise InvalidValueError(
            f"{target} is a Runtime with {named}: write the name of one behind it,"
            f" {', '.join(sorted(known)) or 'of which it has none'}"
        )
    return known[words[0]], words[1:]


def show(runtime: Runtime, start: Callable[[], Node], *, command: str, left: str | None) -> int:
    """Follow the call that *start* begins, and print its result; return the exit code.

    Args:
        runtime: runs the call, and is closed at its end.
        start: begins the call.
        command: the name of the command, for error messages.
        left: what to print if it is interrupted and stays open in a journal; None if there is none.
    """
    # They are asked on the terminal, from the first on, and need no warnings in the log.
    runtime.questions()
    with _raising_on_sigterm(), runtime, LiveTree() as tree:
        try:
            node = start()
            _follow(runtime, node, tree)
        except HeldBackError as error:
            runtime.close()
            with tree.prompt():
                print(f"treefold {command}: {printable(str(error))}", file=sys.stderr)
            return USAGE
        except KeyboardInterrupt as error:
            is_sigterm = isinstance(error, _Terminated)
            code = TERMINATED if is_sigterm else INTERRUPTED
            if left is not None:
                runtime.close()
                with tree.prompt():
                    what = "terminated" if is_sigterm else "interrupted"
                    print(f"treefold {command}: {what}; {left}", file=sys.stderr)
                return code
            # The call may have begun although start() has not returned it yet.
            for node in runtime.list_toplevel():
                node.cancel("SIGTERM" if is_sigterm else "interrupted from the keyboard")
                _follow(runtime, node, tree)
            return code
        # Retrieve the result: otherwise the runtime logs an error as never retrieved.
        with suppress(Exception, SystemExit):
            node.result()
    if node.exception is not None:
        _explain(node.exception, command)
        return FAILED
    print("\n".join(map(printable, str(node.outputs).split("\n"))))
    return DONE


def _check_runs(runtime: Runtime, node: Node) -> None:
    """Raise HeldBackError if this process cannot run *node*: it would not end."""
    for held in runtime.held_back():
        if held.id == node.id:
            raise HeldBackError(node.index, runtime.get_view(node.id).held_back)


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which stops a run as Ctrl-C does."""


@contextmanager
def _raising_on_sigterm() -> Generator[None, None, None]:
    """Raise _Terminated on SIGTERM, which closes the runtime; otherwise it counts as a crash."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    # Python sets signal handlers only in the main thread.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _shown_in_browser(runtime: Runtime) -> Generator[None, None, None]:
    """Serve the viewer of *runtime*, and open it in a browser."""
    with server.view(runtime) as viewer:
        print(f"treefold run: {viewer.url}", file=sys.stderr, flush=True)
        open_page(viewer.url)
        yield


def _choose_model(
    model: str | None,
    store: str | None,
    function: Function,
    args: Mapping[str, Any],
    *,
    embedded: bool,
) -> Model | str | None:
    """Return the model of agents that name none; None if there may be no such agent.

    Raises:
        NoModelError: *function* is one, and none was chosen.
    """
    if model and is_in_file(model) and not embedded:
        return load_model(model)
    is_named = bool(model or embedded)
    is_needed = function.is_agent and getattr(function, "default_model", None) is None
    # Otherwise the runtime knows that of the environment, if an agent below needs one.
    is_chosen = is_named or is_needed
    if not (is_chosen or store):
        return None
    from treefold.cli import model_choice  # noqa: PLC0415 - knows every provider

    if model == model_choice.AUTO and not embedded:
        return model_choice.ask_for_model(store)
    recorded = None
    if store and not is_named:
        recorded = model_choice.recorded_model(store, function.name, args)
    if recorded is not None or not is_chosen:
        return recorded
    return asyncio.run(model_choice.choose_model(model, None, embedded=embedded)).find()


def _unfinished(runtime: Runtime, function: Function, args: Mapping[str, Any]) -> Node | None:
    """Return the same call if an earlier process left it unfinished, and print that."""
    for node in runtime.held_back():
        if node.function is function and node.inputs == args:
            raise HeldBackError(node.index, runtime.get_view(node.id).held_back)
    for node in runtime.recover():
        if node.function is function and node.inputs == args:
            calls = runtime.get_subtree(node.id)[1:]
            done = sum(call.state.final for call in calls)
            open_ = len(calls) - done
            said = {"run": node.index, "done": done, "open": open_}
            print(_RESUMED.format(**said, verb="was" if open_ == 1 else "were"), file=sys.stderr)
            return node
    return None


def _explain(error: BaseException, command: str) -> None:
    """Print *error* and the frames of its traceback that are in the user's own code."""
    ours = str(Path(__file__).parent.parent)
    frames = traceback.extract_tb(error.__traceback__)
    for frame in frames:
        if not frame.filename.startswith(ours):
            print(f"  {frame.filename}:{frame.lineno} in {frame.name}", file=sys.stderr)
    text = str(Failure.of(error))
    # The lines of other errors may come from anywhere, and might look like ours.
    lines = text.split("\n") if isinstance(error, NoModelError) else [text]
    print(f"treefold {command}:", "\n".join(map(printable, lines)), file=sys.stderr)
    if isinstance(error, TracedError) and error.frames:
        for line in agent_traceback(error.frames).split("\n"):
            print(printable(line), file=sys.stderr)


def _follow(runtime: Runtime, node: Node, tree: LiveTree) -> None:
    """Show *node* until it has ended, and put its questions to the user."""
    watch, lines, can_ask = runtime.watch(node, timeout=TICK), StdinLines(), True
    view = partial(runtime.get_view, node.id)
    for _ in tree.follow(watch, lambda: node.state.final):
        _check_runs(runtime, node)
        if can_ask and runtime.questions():
            # The tree on the screen may be older than the question, which needs some rows below.
            tree.show(view(), spare=_FOR_QUESTIONS)
            with messages_held(), tree.prompt() as prompt:
                can_ask = ask_for_answers(runtime, lines, prompt, view)
                if not can_ask and runtime.store is not None:
                    prompt.print(_ANSWER_ELSEWHERE)
            if not can_ask and runtime.store is None:
                node.cancel("nobody was there to answer its question")


def _check(function: Function, args: Mapping[str, Any], given: Iterable[str]) -> None:
    """Check *args*; where a text was *given* that was read as JSON, say how to write it.

    Raises:
        InvalidArgumentsError: the function does not take them.
    """
    try:
        function.parameters.validate(args)
    except InvalidArgumentsError as error:
        parts = [one.partition("=") for one in given]
        texts = {one.name for one in function.parameters.items if one.annotation is str}
        hints = [
            f"; as text it is --arg {shlex.quote(f'{name}={json.dumps(text)}')}"
            for name, _, text in parts
            if name in texts and not isinstance(args[name], str)
        ]
        raise InvalidArgumentsError(f"{error}{''.join(hints)}") from None


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidValueError(f"--arg {text!r} is not NAME=VALUE")
    return name, read_value(value)
