"""``treefold tree``: the calls of a run, one below the other."""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_node_to, add_store_to, node_id, opened, tell_if_undriven
from treefold.cli.output import add_json_to, columns, print_json
from treefold.core.errors import InvalidValueError
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.liveness import up_to_date
from treefold.views.text import render


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "tree",
        description="Show a run, or a call in it, and all that it called.",
        epilog=(
            "example: treefold tree last --depth 2\n\n"
            "Each line has the state of a call (· waits, ● runs, ‖ paused, ✓ returned, ✗ failed,\n"
            "⊘ cancelled, ↯ interrupted: its process has ended), its path, what it was given and\n"
            "what came of it; calls that were asked for in parallel share the number after ∥.\n"
            "Tokens and money are those of the call and all below it.\n\n"
            "exit codes: 0 it was shown, however the run ended, 2 it was not found,\n"
            "130 you stopped following it, and the run goes on"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, "RUN")
    parser.add_argument(
        "--follow", action="store_true", help="show it as it grows, until it has ended"
    )
    parser.add_argument("--depth", metavar="N", type=depth, help="show calls this far down only")
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=tree)


def depth(text: str) -> int:
    """Return how far down *text* says that calls are shown."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of levels, such as 2")
    return int(text)


def tree(options: argparse.Namespace) -> int:
    """Print what *options* name."""
    if options.follow and (options.json or options.depth is not None):
        raise InvalidValueError("--follow shows all of a tree: leave out --json and --depth")
    with opened(options) as observer:
        node = node_id(observer, options.node)
        view = observer.get_view(node)
        if options.follow:
            from treefold.views.terminal import TICK, follow  # noqa: PLC0415 - others need not wait

            if not view.state.final:
                tell_if_undriven(observer)
            follow(observer.watch(node, timeout=TICK), sys.stdout, partial(up_to_date, observer))
            return DONE
        view = up_to_date(observer, view)
        if options.json:
            top = view.path.count(".")
            deepest = float("inf") if options.depth is None else top + options.depth
            print_json([row for row in data.rows(view) if row["path"].count(".") <= deepest])
            return DONE
        lines = render(view, width=columns()).split("\n")
        print("\n".join(lines if options.depth is None else _cut_off(view, lines, options.depth)))
        if not view.state.final:
            tell_if_undriven(observer)
    return DONE


def _cut_off(view: NodeView, lines: list[str], deepest: int) -> Iterator[str]:
    """Yield the lines of calls down to *deepest*, and how many are below each that is there."""
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
