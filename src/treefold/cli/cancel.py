"""``treefold cancel``: end a call, and every call it made."""

import argparse
from collections.abc import Callable

from treefold.cli.journal import add_node_to, add_store_to, node_id, opened
from treefold.cli.outcome import EXIT_CODES, add_wait_to, tell_outcome
from treefold.core.states import NodeState


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "cancel",
        description="Cancel a call, and every call it made.",
        epilog=(
            "example: treefold cancel last --reason 'it is the wrong folder'\n\n"
            "A run that was cancelled goes on, in a fork of it, with 'treefold resume'.\n\n"
            + EXIT_CODES
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, required=True)
    parser.add_argument("--reason", metavar="TEXT", default="cancelled", help="why")
    add_wait_to(parser)
    add_store_to(parser)
    parser.set_defaults(command=cancel)


def cancel(options: argparse.Namespace) -> int:
    """Cancel what *options* name."""
    with opened(options) as observer:
        node = node_id(observer, options.node)
        observer.cancel(node, options.reason)
        name = f"{observer.get_view(node).fn} (node {node})"

        def done() -> str | None:
            state = observer.get_view(node).state
            if state is NodeState.Canceled:
                return f"{name} was cancelled"
            return f"{name} has ended before that ({state})" if state.final else None

        return tell_outcome(options, observer, done, f"{name} is cancelled")
