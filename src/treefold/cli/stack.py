"""``treefold stack``: the calls that lead to what runs now, as a debugger would show them."""

import argparse
from collections.abc import Callable, Iterator

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_node_to, add_store_to, node_id, opened, tell_if_undriven
from treefold.cli.output import add_json_to, columns, print_json
from treefold.core.frames import agent_traceback
from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.text import cut, printable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "stack",
        description="Show the calls from the top-level one through a call to what it waits for.",
        epilog=(
            "example: treefold stack last\n\n"
            "A line for each call, the one that runs now last: its function, its node, what it\n"
            "was given, and how far an agent has come. If several run at the same time, each has\n"
            "a stack of its own; --json has every call once, after the one that made it. Of a run\n"
            "that has ended, the call itself is the last.\n\n"
            "exit codes: 0 it was shown, 2 it was not found"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, "RUN")
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=stack)


def stack(options: argparse.Namespace) -> int:
    """Print the stack of the call that *options* name."""
    with opened(options) as observer:
        node = node_id(observer, options.node)
        view = observer.get_view(node)
        stacks = [observer.stack(call) for call in _at_work(view)]
        if options.json:
            frames = {frame.node_id: frame for frames in stacks for frame in frames}
            print_json([data.frame(frame) for frame in frames.values()])
            return DONE
        width = columns()
        for line in "\n\n".join(map(agent_traceback, stacks)).split("\n"):
            print(cut(printable(line), width))
        if not view.state.final:
            tell_if_undriven(observer)
    return DONE


def _at_work(top: NodeView) -> Iterator[int]:
    """Yield the calls below *top*, or itself, that wait for no other, in the order of calls."""
    views = [top]
    while views:
        view = views.pop()
        below = [child for child in view.children if not child.state.final]
        views.extend(reversed(below))
        if not below:
            yield view.id
