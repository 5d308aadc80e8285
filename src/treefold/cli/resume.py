"""``treefold resume``: let what was paused, has failed or was cancelled go on."""

import argparse
from collections.abc import Callable

from treefold.cli.journal import add_node_to, add_store_to, node_id, opened
from treefold.cli.outcome import EXIT_CODES, add_wait_to, tell_outcome
from treefold.runtime.observer import Observer, is_paused


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "resume",
        description="Let what was paused go on: a call, and all below it.",
        epilog=(
            "example: treefold resume 7\n\n"
            "A run that has failed or was cancelled goes on in a fork of it: what was cancelled\n"
            "or ended because a provider failed is done again, and all else is as it was.\n\n"
            + EXIT_CODES
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_node_to(parser, required=True)
    add_wait_to(parser)
    add_store_to(parser)
    parser.set_defaults(command=resume)


def resume(options: argparse.Namespace) -> int:
    """Resume what *options* name."""
    with opened(options) as observer:
        node = node_id(observer, options.node)
        view, known = observer.get_view(node), _forks(observer, node)
        name = f"{view.fn} (node {node})"
        observer.resume(node)

        def forked() -> str | None:
            new = _forks(observer, node) - known
            return f"{name} goes on as node {min(new)}" if new else None

        def lifted() -> str | None:
            still = is_paused(observer.get_view(node)) or not observer.is_driven
            return None if still else f"{name} goes on"

        done = forked if view.state.final else lifted
        return tell_outcome(options, observer, done, f"{name} goes on")


def _forks(observer: Observer, tree: int) -> set[int]:
    return {row.id for row in observer.trees() if row.source == tree}
