"""``treefold fork``: go on from the past, with something changed."""

import argparse
from collections.abc import Callable
from typing import Final

from treefold.cli.journal import add_node_to, add_store_to, journal_path, node_id, opened
from treefold.cli.loading import load_functions
from treefold.cli.outcome import EXIT_CODES, add_wait_to, tell_outcome
from treefold.cli.run import show
from treefold.cli.values import read_arguments, read_value
from treefold.core.errors import InvalidValueError, StoreOwnedError
from treefold.core.forking import UNCHANGED, Edit
from treefold.runtime.runtime import Runtime

_HERE: Final = "; --with MODULE[:FUNCTION] does it now, and here"
_LEFT: Final = "it stays open in {store}, and goes on when that is next driven"


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "fork",
        description="Go on from the past: start a run that shares what came before a call, makes\n"
        "that call again, and runs what follows.",
        epilog=(
            "example: treefold fork 2 --prompt 'Say it in one word.'\n\n"
            "The run that it comes from stays as it is. Whoever drives the journal is asked to\n"
            "fork; with --with it is done here, if nobody drives it, and shown as 'treefold run'\n"
            "does, and whatever else is open in the journal is gone on with, too.\n\n"
            + EXIT_CODES
            + ";\nwith --with: 0 it returned, 1 it raised"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, required=True)
    add = parser.add_argument
    add("--at", metavar="STEP", type=int, help="the response after which an agent goes on, from 0")
    add("--prompt", metavar="TEXT", help="what the agent is told first, instead")
    add("--model", metavar="NAME", help="the model that the agent asks from there on")
    add("--args", metavar="JSON", help="the arguments of the call, instead: a JSON object")
    add(
        "--result",
        metavar="JSON",
        help="what came of the call, instead; it is not made. Text if it is not JSON",
    )
    add(
        "--with",
        dest="targets",
        metavar="MODULE[:FUNCTION]",
        action="append",
        default=[],
        help="do it here, with the functions of a module or a .py file; may be repeated",
    )
    add(
        "--default-model",
        metavar="NAME",
        help="with --with, the model of agents that name none",
    )
    add_wait_to(parser)
    add_store_to(parser)
    parser.set_defaults(command=fork)


def fork(options: argparse.Namespace) -> int:
    """Fork as *options* say."""
    edit = Edit(
        prompt=options.prompt,
        model=options.model,
        args=None if options.args is None else read_arguments(options.args, "--args"),
        result=UNCHANGED if options.result is None else read_value(options.result),
    )
    if options.targets:
        return _fork_here(options, edit)
    with opened(options) as observer:
        node = node_id(observer, options.node)
        name = f"{observer.get_view(node).fn} (node {node})"
        key = observer.fork(node, options.at, edit)

        def done() -> str | None:
            found = observer.forked(key)
            return None if found is None else f"{name} was forked: the new run is node {found}"

        return tell_outcome(options, observer, done, f"{name} is forked", _HERE)


def _fork_here(options: argparse.Namespace, edit: Edit) -> int:
    functions = load_functions(options.targets)
    with opened(options) as observer:
        node = node_id(observer, options.node)
        top = observer.get_view(observer.tree_of(node))
    path = journal_path(options)
    try:
        runtime = Runtime(functions, models=options.default_model, store=path)
    except StoreOwnedError as error:
        raise StoreOwnedError(error.path, f"{error.args[1]}, or leave out --with") from error
    if top.fn not in runtime.invocable_functions:
        runtime.close()
        known = ", ".join(runtime.invocable_functions)
        raise InvalidValueError(f"run {top.id} began with {top.fn}, and --with has {known}")
    return show(
        runtime,
        lambda: runtime.fork(node, options.at, edit),
        command="fork",
        left=_LEFT.format(store=path),
    )
