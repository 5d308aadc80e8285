"""``treefold replay``: run a recorded run again, and print the first difference."""

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

import click

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.journal import journal_path, observe, run_id
from treefold.cli.loading import DEPS_HELP, TARGET, load_deps, load_functions
from treefold.cli.options import LAST, command, json_option, node_argument, store_option
from treefold.cli.output import print_json
from treefold.core.views import NodeView
from treefold.testing.replaying import Replay, replay as run_again
from treefold.views.text import readable


@command(
    "replay",
    exit_codes="0 nothing differs, 1 something differs, 2 it cannot be run, 130 it was interrupted",
)
@node_argument("RUN")
@click.option(
    "--with",
    "targets",
    type=TARGET,
    metavar="MODULE[:FUNCTION]",
    multiple=True,
    required=True,
    help="a module or a .py file that has the function, or the function in it; may be repeated",
)
@click.option("--deps", metavar="MODULE:NAME", help=DEPS_HELP)
@store_option
@json_option
def replay(
    node: str, targets: tuple[str, ...], store: str | None, deps: str | None, *, json: bool
) -> int:
    """Run a recorded run again with the functions as they are now, and print the first difference.

    example: treefold replay nightly --with report.py

    Agents, and code that calls other functions, run again. Models and people answer as recorded,
    and all other code returns its recorded result: nothing is requested or done again, and the
    journal is only read. Without RUN, --store may also be an exported tree.
    """
    # What the functions print must not mix with the result.
    with redirect_stdout(sys.stderr):
        functions = load_functions(targets)
        tree = _tree(node, store)
        played = run_again(functions, journal_path(store), tree, deps=load_deps(deps))
    if json:
        print_json(_data(played))
    else:
        print(readable(_text(played)))
    return DONE if played.divergence is None else FAILED


def _tree(node: str, store: str | None) -> int | None:
    # The newest run is left to the replay: the store may be an exported tree, not a journal.
    if node == LAST:
        return None
    with observe(store) as observer:
        return run_id(observer, node)


def _data(played: Replay) -> dict[str, Any]:
    found = played.divergence
    diff = None if found is None else asdict(found) | {"diff": found.diff}
    return {"same": found is None, "calls": _count(played.view), "divergence": diff}


def _text(played: Replay) -> str:
    if played.divergence is not None:
        return str(played.divergence)
    calls = _count(played.view)
    return f"{played.view.fn} runs as recorded: {calls} call{'s' if calls > 1 else ''}"


def _count(view: NodeView) -> int:
    count, views = 0, [view]
    for one in views:  # the list grows while it is iterated
        count += 1
        views.extend(one.children)
    return count
