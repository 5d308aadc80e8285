"""``treefold tree``: show the calls of a run."""

import sys
from collections.abc import Iterator
from functools import partial

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import node_id, observe, warn_if_not_driven
from treefold.cli.options import command, depth_option, json_option, node_argument, store_option
from treefold.cli.output import columns, print_json
from treefold.core.errors import InvalidValueError
from treefold.core.views import NodeView
from treefold.runtime.observe.observer import Observer
from treefold.views import data
from treefold.views.liveness import up_to_date
from treefold.views.text import render


@command(
    "tree",
    exit_codes="0 it was shown, however the run ended, 2 it was not found,\n"
    "130 following it was interrupted; the run continues",
)
@node_argument("RUN")
@click.option("--follow", is_flag=True, help="show it as it grows, until it has ended")
@depth_option
@store_option
@json_option
def tree(node: str, depth: int | None, store: str | None, *, follow: bool, json: bool) -> int:
    """Show a run, or a call in it, and all calls below it.

    example: treefold tree last --depth 2

    Each line has the state of a call (· waits, ● runs, ‖ paused, ✓ returned, ✗ failed,
    ⊘ cancelled, ↯ interrupted: its process has ended), its path, its arguments and its result;
    ∥2/4 is the second of four calls that were requested in parallel. Tokens and money include all
    calls below.
    """
    if follow and (json or depth is not None):
        raise InvalidValueError("--follow shows all of a tree: leave out --json and --depth")
    with observe(store) as observer:
        id = node_id(observer, node)
        view = observer.get_view(id)
        if follow:
            _follow(observer, view)
            return DONE
        view = up_to_date(observer, view)
        if json:
            deepest = float("inf") if depth is None else view.path.count(".") + depth
            print_json([row for row in data.rows(view) if row["path"].count(".") <= deepest])
            return DONE
        lines = render(view, width=columns()).split("\n")
        print("\n".join(lines if depth is None else _collapse(view, lines, depth)))
        if not view.state.final:
            warn_if_not_driven(observer)
    return DONE


def _follow(observer: Observer, view: NodeView) -> None:
    from treefold.views.terminal import TICK, follow  # noqa: PLC0415 - only --follow needs it

    if not view.state.final:
        warn_if_not_driven(observer)
    follow(observer.watch(view.id, timeout=TICK), sys.stdout, partial(up_to_date, observer))


def _collapse(view: NodeView, lines: list[str], deepest: int) -> Iterator[str]:
    """Yield the lines of calls down to the level *deepest*, with the number of hidden calls."""
    shown, hidden = "", 0
    for line, level in zip(lines, _levels(view), strict=True):
        if level > deepest:
            hidden += 1
            continue
        if shown:
            yield shown + _below(hidden)
        shown, hidden = line, 0
    yield shown + _below(hidden)


def _below(hidden: int) -> str:
    return f"  (+{hidden})" if hidden else ""


def _levels(top: NodeView) -> Iterator[int]:
    stack = [(top, 0)]
    while stack:
        view, level = stack.pop()
        yield level
        stack.extend((child, level + 1) for child in reversed(view.children))
