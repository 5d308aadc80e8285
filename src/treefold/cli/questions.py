"""``treefold questions``: list the questions that wait for a person."""

from collections.abc import Iterator, Mapping
from typing import Any

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import observe
from treefold.cli.options import command, json_option, store_option
from treefold.cli.output import print_json
from treefold.runtime.observe.observer import Observer
from treefold.views import data
from treefold.views.text import printable, readable


@command(
    "questions", exit_codes="0 they were listed, also if there are none, 2 there is no journal"
)
@store_option
@json_option
def questions(store: str | None, *, json: bool) -> int:
    """List the questions that wait for a person, oldest first.

    example: treefold questions

    Each has an id, the call that waits, its kind, the question, and the possible answers; without
    these, any text is accepted. 'treefold answer ID TEXT' answers.
    """
    with observe(store) as observer:
        found = list(_open_questions(observer))
    if json:
        print_json(found)
    else:
        print("\n".join(map(_text, found)) or "no question waits for an answer")
    return DONE


def _open_questions(observer: Observer) -> Iterator[dict[str, Any]]:
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
