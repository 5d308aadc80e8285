"""``treefold pause``: let a call, and all below it, stand still."""

import argparse
from collections.abc import Callable

from treefold.cli.journal import add_node_to, add_store_to, node_id, opened
from treefold.cli.outcome import EXIT_CODES, add_wait_to, tell_outcome
from treefold.core.question import QuestionKind


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "pause",
        description="Let a call, and all below it, make no further request or call.",
        epilog=(
            "example: treefold pause last --reason 'it spends too much'\n\n"
            "What is under way goes on until then. 'treefold resume' lets it go on.\n\n"
            + EXIT_CODES
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, required=True)
    parser.add_argument("--reason", metavar="TEXT", default="it was paused", help="why")
    add_wait_to(parser)
    add_store_to(parser)
    parser.set_defaults(command=pause)


def pause(options: argparse.Namespace) -> int:
    """Pause what *options* name."""
    with opened(options) as observer:
        node = node_id(observer, options.node)
        observer.pause(node, options.reason)
        name = f"{observer.get_view(node).fn} (node {node})"

        def done() -> str | None:
            view = observer.get_view(node)
            if view.state.final:
                return f"{name} has ended meanwhile ({view.state})"
            held = any(question.kind is QuestionKind.Paused for question in view.questions)
            return f"{name} is paused; 'treefold resume {node}' lets it go on" if held else None

        return tell_outcome(options, observer, done, f"{name} is paused")
