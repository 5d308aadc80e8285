"""``ramify stack``: the calls that lead to what runs now, as a debugger would show them."""

import argparse
from collections.abc import Callable

from ramify.cli.exit_codes import DONE
from ramify.cli.journal import add_node_to, add_store_to, node_id, opened, tell_if_undriven
from ramify.cli.output import add_json_to, columns, print_json
from ramify.core.frames import agent_traceback
from ramify.views import data
from ramify.views.text import cut, printable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "stack",
        description="Show the calls from the top-level one through a call to what it waits for.",
        epilog=(
            "example: ramify stack last\n\n"
            "A line for each call, the one that runs now last: its function, its node, what it\n"
            "was given, and how far an agent has come. Of a run that has ended, the call itself\n"
            "is the last.\n\n"
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
        frames = observer.stack(node)
        if options.json:
            print_json([data.frame(frame) for frame in frames])
            return DONE
        width = columns()
        for line in agent_traceback(frames).split("\n"):
            print(cut(printable(line), width))
        if not observer.get_view(node).state.final:
            tell_if_undriven(observer)
    return DONE
