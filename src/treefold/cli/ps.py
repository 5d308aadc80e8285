"""``treefold ps``: list the runs of a journal."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treefold.cli.exit_codes import DONE
from treefold.cli.journal import observe, warn_if_not_driven
from treefold.cli.options import command, json_option, store_option
from treefold.cli.output import aligned, clock, columns, duration, print_json
from treefold.core.truncation import truncate
from treefold.runtime.observe.observer import Observer
from treefold.views import data

_HEAD = ("RUN", "FUNCTION", "STATE", "STARTED", "ELAPSED", "QUESTIONS", "KEY")


@command("ps", exit_codes="0 they were listed, also if there are none, 2 there is no journal")
@store_option
@json_option
def ps(store: str | None, *, json: bool) -> int:
    """List the runs of a journal, newest last.

    example: treefold ps

    A run that waits for a person is 'parked', and 'answered' from the answer until its program
    resumes; one that only waits for a time is 'asleep'. One whose process has ended is
    'interrupted', and its time ends with its last event. 'treefold questions' shows the questions,
    and 'treefold tree RUN' the calls of a run, with paths that begin with its number.
    """
    with observe(store) as observer:
        trees = list_runs(observer)
        if json:
            print_json(trees)
            return DONE
        room = columns()
        for line in aligned(_table(trees, time.time())) if trees else ["no runs yet"]:
            print(truncate(line, room))
        if any(tree["open"] for tree in trees):
            warn_if_not_driven(observer)
    return DONE


def list_runs(observer: Observer) -> list[dict[str, Any]]:
    """Return the runs of a journal as data, each with the number of its open questions."""
    # Runs are read before questions: a run that is parked has asked its questions by then.
    trees = observer.trees()
    asked, interrupted = questions_by_run(observer), observer.interrupted()
    numbers = {tree.id: tree.number for tree in trees}
    return [
        data.tree(
            tree,
            asked[tree.id],
            source=numbers.get(tree.source),
            interrupted=tree.id in interrupted,
        )
        for tree in trees
    ]


def questions_by_run(observer: Observer) -> Counter[int]:
    """Return the number of open questions of each run, by its id."""
    asked = [question.node_id for question in observer.questions()]
    trees = observer.trees_of(asked)
    return Counter(trees[node] for node in asked if node in trees)


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
        if tree["asleep_until"] is not None and not tree["questions"]:
            state = "asleep"
    asked = str(tree["questions"] or "")
    source = "" if tree["source"] is None else f"fork of {tree['source_number']}"
    name = str(tree["number"]), tree["function"]
    return *name, state, clock(started), took, asked, tree["key"] or source
