"""``treefold run``: call a function and watch the tree grow."""

import argparse
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

from treefold.cli.asking import ask_for_answers
from treefold.cli.browser import open_page
from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE
from treefold.cli.loading import MODEL_HELP, load_function
from treefold.cli.typed_lines import TypedLines
from treefold.cli.values import read_value
from treefold.core.errors import (
    InvalidArgumentsError,
    InvalidValueError,
    TracedError,
    TreefoldError,
)
from treefold.core.events import Failure
from treefold.core.frames import agent_traceback
from treefold.core.function import Function, Node
from treefold.runtime.runtime import Runtime
from treefold.stores.memory_store import MemoryStore
from treefold.views.terminal import TICK, LiveTree
from treefold.views.text import printable
from treefold.views.web import server

AUTO = "auto"

_FOR_QUESTIONS = 8  # rows of the screen below the tree
_GOES_ON = (
    "==> an earlier process has begun this run (node {node}): {done} of its calls are done,"
    " {open} {verb} under way; it goes on where it was"
)
_ELSEWHERE = (
    "treefold run: nobody answers here; 'treefold answer' and the viewer do, from elsewhere"
)
_LEFT = "the same command goes on with it, from {store}"


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "run",
        description="Call a function and watch the tree grow. Prints what it returned.",
        epilog=(
            "example: treefold run examples/survey.py:survey --arg folder=src/treefold/core\n\n"
            "Questions that a function asks are put to you on the terminal, one line each.\n"
            "With --store, a run that was interrupted or killed goes on when the same command is\n"
            "given again: what was done is not done twice.\n\n"
            "exit codes: 0 it returned, 1 it raised, 2 it was not called, 130 it was interrupted,\n"
            "143 it was terminated"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target", metavar="MODULE:FUNCTION", help="a module or a .py file, and a name in it"
    )
    parser.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an argument; the value is read as JSON if it is JSON, otherwise as text",
    )
    parser.add_argument(
        "--model", metavar="NAME", help=f"{MODEL_HELP}; {AUTO} asks which of those found here"
    )
    parser.add_argument(
        "--store", metavar="FILE", help="write a journal there, and go on with what is open in it"
    )
    parser.add_argument(
        "--view", action="store_true", help="show it in a browser, too, for as long as it runs"
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Call what *options* name and show it."""
    try:
        function = load_function(options.target)
        args = dict(map(_argument, options.arg))
        _check(function, args, options.arg)
        model = _offered(options.store) if options.model == AUTO else options.model
        store = options.store or (MemoryStore() if options.view else None)
        runtime = Runtime([function], models=model, store=store)
    except TreefoldError as error:
        print(f"treefold run: {error}", file=sys.stderr)
        return USAGE
    left = None if options.store is None else _LEFT.format(store=options.store)
    with _shown(runtime) if options.view else nullcontext():
        return show(
            runtime,
            lambda: _begun(runtime, function, args) or runtime.invoke(function, args),
            command="run",
            left=left,
        )


def show(runtime: Runtime, start: Callable[[], Node], *, command: str, left: str | None) -> int:
    """Follow the call that *start* begins, and print what came of it; return the exit code.

    Args:
        runtime: runs it, and is closed with that.
        start: begins the call.
        command: whose errors these are.
        left: what to say when it is interrupted and stays open in a journal; None if it cannot.
    """
    with _raising_on_sigterm(), runtime, LiveTree() as tree:
        try:
            node = start()
            _follow(runtime, node, tree)
        except KeyboardInterrupt as error:
            is_sigterm = isinstance(error, _Terminated)
            code = TERMINATED if is_sigterm else INTERRUPTED
            if left is not None:
                runtime.close()
                with tree.prompt():
                    what = "terminated" if is_sigterm else "interrupted"
                    print(f"treefold {command}: {what}; {left}", file=sys.stderr)
                return code
            for node in runtime.list_toplevel():  # it may have begun before it was returned
                node.cancel("SIGTERM" if is_sigterm else "interrupted from the keyboard")
                _follow(runtime, node, tree)
            return code
        with suppress(Exception, SystemExit):
            node.result()  # it has been asked for: nobody else need report it
    if node.exception is not None:
        _explain(node.exception, command)
        return FAILED
    print("\n".join(map(printable, str(node.outputs).split("\n"))))
    return DONE


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which stops a run as Ctrl-C does."""


@contextmanager
def _raising_on_sigterm() -> Generator[None, None, None]:
    """Close the runtime on SIGTERM: otherwise it counts as a death of the process."""

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # Python allows it only there
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _shown(runtime: Runtime) -> Generator[None, None, None]:
    """Show *runtime* in a browser."""
    with server.view(runtime) as viewer:
        print(f"treefold run: {viewer.url}", file=sys.stderr, flush=True)
        open_page(viewer.url)
        yield


def _offered(store: str | None) -> str:
    from treefold.cli.model_offer import offered_model  # noqa: PLC0415 - only who asks for it waits

    return offered_model(store)


def _begun(runtime: Runtime, function: Function, args: Mapping[str, Any]) -> Node | None:
    """Return the call that an earlier process has begun and not ended, and say so."""
    for node in runtime.recover():
        if node.function is function and node.inputs == args:
            calls = runtime.get_subtree(node.id)[1:]
            done = sum(call.state.final for call in calls)
            open_ = len(calls) - done
            said = {"node": node.id, "done": done, "open": open_}
            print(_GOES_ON.format(**said, verb="was" if open_ == 1 else "were"), file=sys.stderr)
            return node
    return None


def _explain(error: BaseException, command: str) -> None:
    """Print *error* and where in the user's own code it came from."""
    ours = str(Path(__file__).parent.parent)
    frames = traceback.extract_tb(error.__traceback__)
    for frame in frames:
        if not frame.filename.startswith(ours):
            print(f"  {frame.filename}:{frame.lineno} in {frame.name}", file=sys.stderr)
    print(f"treefold {command}: {printable(str(Failure.of(error)))}", file=sys.stderr)
    if isinstance(error, TracedError) and error.frames:
        for line in agent_traceback(error.frames).split("\n"):
            print(printable(line), file=sys.stderr)


def _follow(runtime: Runtime, node: Node, tree: LiveTree) -> None:
    """Show *node* until it has ended, and have its questions answered."""
    watch, lines, somebody = runtime.watch(node, timeout=TICK), TypedLines(), True
    view = partial(runtime.get_view, node.id)
    for _ in tree.follow(watch, lambda: node.state.final):
        if somebody and runtime.questions():
            # What was shown may be older than the question, which needs some rows of the screen.
            tree.show(view(), spare=_FOR_QUESTIONS)
            with tree.prompt() as prompt:
                somebody = ask_for_answers(runtime, lines, prompt, view)
                if not somebody and runtime.store is not None:
                    prompt.print(_ELSEWHERE)
            if not somebody and runtime.store is None:
                node.cancel("there was nobody to answer its question")


def _check(function: Function, args: Mapping[str, Any], given: Iterable[str]) -> None:
    """Check *args*, as they were *given*; of text that was read as JSON, say how to write it.

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
