"""``treefold questions``: all that waits for a person."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_store_to, opened
from treefold.cli.output import add_json_to, print_json
from treefold.runtime.observer import Observer
from treefold.views import data
from treefold.views.text import printable, readable


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "questions",
        description="List all that waits for a person, oldest first.",
        epilog=(
            "example: treefold questions\n\n"
            "Each has an id, the call that waits, why, the question, and the answers there are;\n"
            "without them any text will do. 'treefold answer ID TEXT' answers.\n\n"
            "exit codes: 0 they were listed, also if there are none, 2 there is no journal"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=questions)


def questions(options: argparse.Namespace) -> int:
    """Print what waits in the journal that *options* name."""
    with opened(options) as observer:
        found = list(_asked(observer))
    if options.json:
        print_json(found)
    else:
        print("\n".join(map(_text, found)) or "nothing waits for an answer")
    return DONE


def _asked(observer: Observer) -> Iterator[dict[str, Any]]:
    for question in observer.questions():
        node = question.node_id
        view = observer.get_view(node)
        where = {"tree": observer.tree_of(node), "path": view.path, "fn": view.fn}
        yield data.question(question) | where


def _text(question: Mapping[str, Any]) -> str:
    head = f"{question['id']}  {question['path']} {question['fn']}  {question['kind']}"
    lines = readable(question["text"]).split("\n")
    choices = [f"[{' / '.join(question['choices'])}]"] if question["choices"] else []
    return "\n    ".join([printable(head), *lines, *map(printable, choices)])
