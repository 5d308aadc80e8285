"""``treefold replay``: run what was recorded again, and say where it goes another way now."""

import argparse
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.journal import LAST, add_node_to, add_store_to, journal_path, opened, run_id
from treefold.cli.loading import load_functions
from treefold.cli.output import add_json_to, print_json
from treefold.core.views import NodeView
from treefold.testing.replaying import Replay, replay as run_again
from treefold.views.text import readable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "replay",
        description="Run what was recorded again with the functions as they are now, and print\n"
        "the first thing that goes another way.",
        epilog=(
            "example: treefold replay nightly --with report.py\n\n"
            "Agents and code that calls others run. Models say what they said, all other code\n"
            "gives what it gave, and people answer what they answered: nothing is asked or done\n"
            "again, and the journal is only read. Without RUN, --store may also be a tree that\n"
            "was exported.\n\n"
            "exit codes: 0 it goes as it went, 1 it goes another way, 2 it cannot be run,\n"
            "130 it was interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, "RUN")
    parser.add_argument(
        "--with",
        dest="targets",
        metavar="MODULE[:FUNCTION]",
        action="append",
        required=True,
        help="a module or a .py file that has the function, or the function in it; may be repeated",
    )
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=replay)


def replay(options: argparse.Namespace) -> int:
    """Run what *options* name again."""
    with redirect_stdout(sys.stderr):  # what the functions print is not what was asked for
        functions = load_functions(options.targets)
        played = run_again(functions, journal_path(options), _tree(options))
    if options.json:
        print_json(_data(played))
    else:
        print(readable(_text(played)))
    return DONE if played.divergence is None else FAILED


def _tree(options: argparse.Namespace) -> int | None:
    if options.node == LAST:  # and there may be no journal, but one tree in a file
        return None
    with opened(options) as observer:
        return run_id(observer, options.node)


def _data(played: Replay) -> dict[str, Any]:
    found = played.divergence
    diff = None if found is None else asdict(found) | {"diff": found.diff}
    return {"same": found is None, "calls": _count(played.view), "divergence": diff}


def _text(played: Replay) -> str:
    if played.divergence is not None:
        return str(played.divergence)
    calls = _count(played.view)
    return f"{played.view.fn} goes as it went: {calls} call{'s' if calls > 1 else ''}"


def _count(view: NodeView) -> int:
    count, views = 0, [view]
    for one in views:  # which grows meanwhile
        count += 1
        views.extend(one.children)
    return count
