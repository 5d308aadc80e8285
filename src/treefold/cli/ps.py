"""``treefold ps``: the runs of a journal."""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import add_store_to, opened, tell_if_undriven
from treefold.cli.output import add_json_to, aligned, clock, columns, duration, print_json
from treefold.runtime.observer import Observer
from treefold.views import data
from treefold.views.text import cut

_HEAD = ("ID", "PATH", "FUNCTION", "STATE", "STARTED", "ELAPSED", "QUESTIONS", "KEY")


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "ps",
        description="List the runs of a journal, newest last.",
        epilog=(
            "example: treefold ps\n\n"
            "A run that waits until somebody answers is 'parked', and then 'answered' until its\n"
            "program resumes. One whose process has ended is 'interrupted', and its time is that\n"
            "up to its last event. 'treefold questions' shows the questions, 'treefold tree ID'\n"
            "all of a run. A plain number means an ID; the paths of a run's calls begin with its\n"
            "PATH.\n\n"
            "exit codes: 0 they were listed, also if there are none, 2 there is no journal"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store_to(parser)
    add_json_to(parser)
    parser.set_defaults(command=ps)


def ps(options: argparse.Namespace) -> int:
    """Print the runs of the journal that *options* name."""
    with opened(options) as observer:
        trees = listed(observer)
        if options.json:
            print_json(trees)
            return DONE
        room = columns()
        for line in aligned(_table(trees, time.time())) if trees else ["no runs yet"]:
            print(cut(line, room))
        if any(tree["open"] for tree in trees):
            tell_if_undriven(observer)
    return DONE


def listed(observer: Observer) -> list[dict[str, Any]]:
    """Return the runs of a journal, and how many questions of each wait."""
    trees = observer.trees()  # before the questions: a run that is parked has asked them
    asked, interrupted = questions_by_run(observer), observer.interrupted()
    return [data.tree(tree, asked[tree.id], interrupted=tree.id in interrupted) for tree in trees]


def questions_by_run(observer: Observer) -> Counter[int]:
    """Return how many questions of each run wait, by its id."""
    return Counter(observer.tree_of(question.node_id) for question in observer.questions())


def _table(trees: Iterable[Mapping[str, Any]], now: float) -> list[Sequence[str]]:
    return [_HEAD, *(_cells(tree, now) for tree in trees)]


def _cells(tree: Mapping[str, Any], now: float) -> Sequence[str]:
    started, ended = tree["started"], tree["ended"]
    if ended is None and tree["open"]:
        ended = now
    took = "" if started is None or ended is None else duration(ended - started)
    state = tree["state"]
    if tree["parked"]:
        state = "parked" if tree["questions"] else "answered"
    asked = str(tree["questions"] or "")
    source = "" if tree["source"] is None else f"fork of {tree['source']}"
    name = str(tree["id"]), str(tree["number"]), tree["function"]
    return *name, state, clock(started), took, asked, tree["key"] or source
