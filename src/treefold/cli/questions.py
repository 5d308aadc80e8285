"""``treefold questions``: list the questions that wait for a person."""

import sys

import click

from treefold.cli.asking_call import AskingCall, table_of
from treefold.cli.exit_codes import DONE
from treefold.cli.journal import observe
from treefold.cli.options import command, json_option, store_option
from treefold.cli.output import print_json


@command(
    "questions", exit_codes="0 they were listed, also if there are none, 2 there is no journal"
)
@click.option("--to", metavar="WHO", help="only those for this person or team")
@store_option
@json_option
def questions(to: str | None, store: str | None, *, json: bool) -> int:
    """List the questions that wait for a person, oldest first.

    example: treefold questions

    Each has the path of the call that waits, its arguments, and the call that made it; ':2' marks
    the second question of a call. Below that is the question, with its kind unless a function asks,
    and the possible answers or the fields of its form; without these, any text is accepted.
    'treefold answer PATH TEXT' answers, and 'treefold answer TEXT' if there is only one question.
    """
    with observe(store) as observer:
        asked = [one for one in observer.questions() if to is None or one.to == to]
        found = [AskingCall.of(one, observer.stack) for one in asked]
        trees = [observer.tree_of(one.question.node_id) for one in found]
    if json:
        pairs = zip(found, trees, strict=True)
        print_json([one.as_data() | {"tree": tree} for one, tree in pairs])
    else:
        print(
            "\n".join(table_of(found, sys.stdout)) if found else "no question waits for an answer"
        )
    return DONE
