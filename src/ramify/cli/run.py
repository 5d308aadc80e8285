"""``ramify run``: call a function and watch the tree grow."""

import argparse
import importlib
import importlib.util
import json
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from ramify.cli.asking import ask_for_answers
from ramify.core.errors import InvalidValueError, RamifyError, TracedError
from ramify.core.events import Failure
from ramify.core.frames import agent_traceback
from ramify.core.function import Function, Node, checked_function
from ramify.runtime.runtime import Runtime
from ramify.views.text import printable, render

EXIT_FAILED = 1  # the call raised
EXIT_USAGE = 2  # nothing was called
EXIT_INTERRUPTED = 130

_UP_AND_CLEAR = "\x1b[{}F\x1b[J"


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "run",
        help="call a function and watch the tree grow",
        description="Call a function and watch the tree grow. Prints what it returned.",
        epilog=(
            "example: ramify run examples/survey.py:survey --arg folder=src/ramify/core\n\n"
            "Questions that a function asks are put to you on the terminal, one line each.\n"
            "exit codes: 0 it returned, 1 it raised, 2 it was not called, 130 it was interrupted"
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
        "--model",
        metavar="NAME",
        help="the model of agents that name none: local, anthropic:MODEL, openai:MODEL@URL, ...",
    )
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Call what *options* name and show it."""
    try:
        function = _load(options.target)
        args = dict(map(_argument, options.arg))
        runtime = Runtime([function], models=options.model)
    except RamifyError as error:
        print(f"ramify run: {error}", file=sys.stderr)
        return EXIT_USAGE
    with runtime:
        node = runtime.invoke(function, args)
        try:
            _follow(runtime, node)
        except KeyboardInterrupt:
            node.cancel("interrupted from the keyboard")
            _follow(runtime, node)
            return EXIT_INTERRUPTED
        with suppress(Exception, SystemExit):
            node.result()  # it has been asked for: nobody else need report it
    if node.exception is not None:
        _explain(node.exception)
        return EXIT_FAILED
    print("\n".join(map(printable, str(node.outputs).split("\n"))))
    return 0


def _explain(error: BaseException) -> None:
    """Print *error* and where in the user's own code it came from."""
    ours = str(Path(__file__).parent.parent)
    frames = traceback.extract_tb(error.__traceback__)
    for frame in frames:
        if not frame.filename.startswith(ours):
            print(f"  {frame.filename}:{frame.lineno} in {frame.name}", file=sys.stderr)
    print(f"ramify run: {printable(str(Failure.of(error)))}", file=sys.stderr)
    if isinstance(error, TracedError) and error.frames:
        for line in agent_traceback(error.frames).split("\n"):
            print(printable(line), file=sys.stderr)


def _follow(runtime: Runtime, node: Node) -> None:
    """Show *node* as it changes if somebody looks, otherwise when it has ended."""
    size = shutil.get_terminal_size()
    live = sys.stderr.isatty()
    shown = 0
    for view in runtime.watch(node):
        if runtime.questions():
            shown = 0  # the tree goes on below the conversation
            if not ask_for_answers(runtime):
                node.cancel("there was nobody to answer its question")
        if not live and not view.state.final:
            continue
        lines = render(view, width=size.columns).splitlines()
        if not view.state.final:
            lines = lines[: size.lines - 2]  # what has scrolled away cannot be drawn again
        if shown:
            sys.stderr.write(_UP_AND_CLEAR.format(shown))
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
        shown = len(lines)


def _load(target: str) -> Function:
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InvalidValueError(f"{target!r} is not MODULE:FUNCTION, such as package.module:main")
    try:
        module = _module(place)
    except (Exception, SystemExit) as error:
        raise InvalidValueError(f"{place} cannot be imported: {Failure.of(error)}") from error
    found = getattr(module, name, None)
    if callable(found):
        return checked_function(found, f"ramify run {target}")
    if not isinstance(found, Function):
        known = [name for name, value in vars(module).items() if isinstance(value, Function)]
        listed = ", ".join(known) or "none"
        raise InvalidValueError(f"{place} has no function {name!r}; it has {listed}")
    return found


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        sys.path.insert(0, "")  # as python -m does
        return importlib.import_module(place)
    sys.path.insert(0, str(path.parent))  # as python does with a file
    name = f"ramify run {path.stem}"  # which no import can mean
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidValueError(f"--arg {text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
