"""Which runs a client is shown: filters, pages and counts."""

from typing import Any

import pytest

from treefold.views.web.run_query import PAGE, RunQuery, select


def run(id: int, **changed: Any) -> dict[str, Any]:
    return {
        "id": id,
        "number": id,
        "key": "",
        "function": "report",
        "state": "success",
        "open": False,
        "source": None,
        "questions": 0,
        **changed,
    }


RUNS = [
    run(1),
    run(2, function="deliver", state="error", key="Nightly"),
    run(3, state="running", open=True, questions=1),
    run(4, source=2, function="deliver"),
    run(5, state="running", open=True),
]


def ids(query: RunQuery) -> list[int]:
    return [tree["id"] for tree in select(RUNS, query)["trees"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (RunQuery(), [1, 2, 3, 4, 5]),
        (RunQuery(state="success"), [1, 4]),
        (RunQuery(state="asking"), [3]),
        (RunQuery(state="running"), [5]),
        (RunQuery(function="deliver"), [2, 4]),
        (RunQuery(function="deliver", state="success"), [4]),
        (RunQuery(text="nightly"), [2]),
        (RunQuery(text="nothing has this"), []),
        (RunQuery(newest=3), [1, 2, 3]),
        (RunQuery(about=2), [2, 4]),
        (RunQuery(about=4), [2, 4]),
        (RunQuery(about=1), [1]),
    ],
)
def test_a_filter_keeps_the_runs_that_match(query: RunQuery, found: list[int]):
    assert ids(query) == found


def test_counts_leave_out_their_own_filter():
    found = select(RUNS, RunQuery(state="success", function="deliver"))
    assert found["states"] == {"error": 1, "success": 1}
    assert found["functions"] == {"report": 1, "deliver": 1}
    assert (found["total"], found["open"], found["matching"]) == (5, 2, 1)


def test_pages_begin_with_the_newest_and_there_is_always_one():
    runs = [run(id) for id in range(1, 2 * PAGE + 6)]
    pages = [select(runs, RunQuery(page=page)) for page in (1, 2, 3, 99)]
    assert [[page["trees"][0]["id"], page["trees"][-1]["id"]] for page in pages] == [
        [PAGE + 6, 2 * PAGE + 5],
        [6, PAGE + 5],
        [1, 5],
        [1, 5],
    ]
    assert [(page["page"], page["first"]) for page in pages] == [
        (1, 1),
        (2, PAGE + 1),
        (3, 2 * PAGE + 1),
        (3, 2 * PAGE + 1),
    ]
    assert {page["pages"] for page in pages} == {3}
    empty = select([], RunQuery(page=7))
    assert (empty["page"], empty["pages"], empty["trees"]) == (1, 1, [])
