"""The flame graph by time, tokens and money, as numbers."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from treefold import NodeState, NodeView, TokenUsage
from treefold.core.fact import replace
from treefold.views.data import flame
from treefold.views.flame import By

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(seconds=10)


def call(
    id: int,
    begin: float | None,
    end: float | None,
    *children: NodeView,
    tokens: int = 0,
    cost: str | None = "0",
) -> NodeView:
    return NodeView(
        id=id,
        path=str(id),
        fn=f"f{id}",
        inputs={},
        outputs=None,
        exception=None,
        state=NodeState.Running if end is None else NodeState.Success,
        values=(),
        children=children,
        sequence=1,
        usage=TokenUsage(output=tokens),
        cost=None if cost is None else Decimal(cost),
        started_at=None if begin is None else START + timedelta(seconds=begin),
        ended_at=None if end is None else START + timedelta(seconds=end),
        update_seqnum=1,
    )


def frames(view: NodeView, by: By) -> list[tuple[Any, ...]]:
    names = ("id", "depth", "start", "width", "value", "own")
    return [tuple(frame[n] for n in names) for frame in flame(view, by, now=NOW)["frames"]]


def test_time_is_laid_out_as_it_passed():
    view = call(1, 0, 8, call(2, 0, 4), call(3, 2, 6, call(4, 2, 3)), call(5, None, None))
    assert frames(view, "time") == [
        (1, 0, 0.0, 1.0, 8.0, 2.0),
        (2, 1, 0.0, 0.5, 4.0, 4.0),
        (3, 1, 0.25, 0.5, 4.0, 3.0),
        (4, 2, 0.25, 0.125, 1.0, 1.0),
        (5, 1, 1.0, 0.0, 0.0, 0.0),
    ]


def test_what_has_not_ended_goes_on_until_now():
    assert frames(call(1, 0, None, call(2, 5, None)), "time") == [
        (1, 0, 0.0, 1.0, 10.0, 5.0),
        (2, 1, 0.5, 0.5, 5.0, 5.0),
    ]


def test_a_clock_that_was_set_back_draws_nothing_outside():
    assert frames(call(1, 2, 4, call(2, 0, 9), call(3, 3, 1)), "time") == [
        (1, 0, 0.0, 1.0, 2.0, 0.0),
        (2, 1, 0.0, 1.0, 2.0, 2.0),
        (3, 1, 0.5, 0.0, 0.0, 0.0),
    ]


def test_a_run_that_has_not_begun_has_no_width():
    assert frames(call(1, None, None), "time") == [(1, 0, 0.0, 0.0, 0.0, 0.0)]
    assert frames(call(1, None, None), "tokens") == [(1, 0, 0.0, 0.0, 0, 0)]
    assert frames(call(1, None, None), "money") == [(1, 0, 0.0, 0.0, "0", "0")]


def test_tokens_lie_side_by_side():
    view = call(
        1, 0, 8, call(2, 0, 4, tokens=50), call(3, 2, 6, call(4, 2, 3, tokens=20)), tokens=30
    )
    assert frames(view, "tokens") == [
        (1, 0, 0.0, 1.0, 100, 30),
        (2, 1, 0.0, 0.5, 50, 50),
        (3, 1, 0.5, 0.2, 20, 0),
        (4, 2, 0.5, 0.2, 20, 20),
    ]


def test_money_whose_amount_is_unknown_counts_as_nothing_and_that_is_said():
    view = call(1, 0, 8, call(2, 0, 4, cost="0.0030"), call(3, 2, 6, cost=None), cost="0.001")
    assert frames(view, "money") == [
        (1, 0, 0.0, 1.0, "0.004", "0.001"),
        (2, 1, 0.0, 0.75, "0.003", "0.003"),
        (3, 1, 0.75, 0.0, "0", "0"),
    ]
    found = flame(view, "money")
    assert (found["by"], found["total"], found["complete"]) == ("money", "0.004", False)
    assert flame(view, "tokens")["complete"]


def test_a_deep_tree_is_no_trouble():
    view = call(1, 0, 8, tokens=1)
    for id in range(2, 3000):
        view = replace(view, id=id, children=(view,))
    for by in ("time", "tokens", "money"):
        assert len(frames(view, by)) == 2999
