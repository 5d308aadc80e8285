"""Two runs side by side."""

from datetime import UTC, datetime, timedelta
from typing import Any

from treefold import (
    ModelText,
    NodeState,
    NodeView,
    ThinkingPart,
    TokenUsage,
    ToolUse,
    UserText,
)
from treefold.core.events import Failure
from treefold.core.fact import replace
from treefold.views.data import difference, rows

LEAF = NodeView(
    id=1,
    path="1",
    fn="leaf",
    inputs={"n": 1},
    outputs=2,
    exception=None,
    state=NodeState.Success,
    values=(),
    children=(),
    sequence=1,
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    ended_at=None,
    update_seqnum=1,
)


def call(id: int, fn: str = "leaf", *children: NodeView, **inputs: Any) -> NodeView:
    return replace(LEAF, id=id, path=str(id), fn=fn, inputs=inputs, children=children)


def pairs(a: NodeView, b: NodeView) -> list[tuple[int | None, int | None, list[str]]]:
    return [
        (row["a"] and row["a"]["id"], row["b"] and row["b"]["id"], row["changed"])
        for row in difference(a, b)["rows"]
    ]


def test_the_same_program_twice_is_the_same_whatever_it_took():
    later = timedelta(days=1)
    a = call(1, "top", call(2, n=1), call(3, n=2))
    assert LEAF.started_at is not None
    b = replace(
        call(11, "top", call(13, n=2), call(12, n=1)),  # in parallel, so in another order
        path="2",
        started_at=LEAF.started_at + later,
        usage=TokenUsage(output=9),
        update_seqnum=99,
    )
    found = difference(a, b)
    assert found["same"]
    assert pairs(a, b) == [(1, 11, []), (2, 12, []), (3, 13, [])]
    assert [row["a"] for row in found["rows"]] == rows(a)


def test_what_changed_is_named():
    transcript = (UserText("hi"), ThinkingPart("hm", signature="x"), ToolUse("7", "f", {"a": 1}))
    a = replace(LEAF, model="m", transcript=transcript)
    again = (UserText("hi"), ThinkingPart("hm", signature="y"), ToolUse("8", "f", {"a": 1}))
    for changes, names in [
        ({"transcript": again}, []),
        ({"transcript": (*transcript, ModelText("more"))}, ["transcript"]),
        ({"transcript": (*transcript[:2], ToolUse("7", "f", {"a": 2}))}, ["transcript"]),
        ({"fn": "other"}, ["function"]),
        ({"inputs": {"n": 2}}, ["inputs"]),
        ({"outputs": 3}, ["result"]),
        ({"outputs": True}, ["result"]),
        ({"model": "n"}, ["model"]),
        ({"values": (1,)}, ["values"]),
        (
            {"outputs": None, "state": NodeState.Error, "exception": Failure("E", "x")},
            ["state", "result", "error"],
        ),
    ]:
        b = replace(a, **changes)
        assert pairs(a, b) == [(1, 1, names)]
        assert difference(a, b)["same"] is (not names)


def test_calls_correspond_by_function_and_arguments_and_then_by_function():
    a = call(1, "top", call(2, "f", x=1), call(3, "f", x=2), call(4, "g"), call(5, "f", x=9))
    b = call(1, "top", call(12, "h"), call(13, "f", x=2), call(14, "f", x=1), call(15, "f", x=3))
    assert pairs(a, b) == [
        (1, 1, []),
        (None, 12, []),
        (2, 14, []),
        (3, 13, []),
        (4, None, []),
        (5, 15, ["inputs"]),
    ]
    assert not difference(a, b)["same"]


def test_what_only_one_run_has_is_there_with_all_below_it():
    extra = call(3, "f", call(4, "g"))
    a, b = call(1, "top", call(2, "e")), call(11, "top", extra, call(12, "e"))
    assert pairs(a, b) == [(1, 11, []), (None, 3, []), (None, 4, []), (2, 12, [])]
    assert pairs(b, a) == [(11, 1, []), (3, None, []), (4, None, []), (12, 2, [])]


def test_many_calls_and_deep_ones_are_no_trouble():
    wide = call(1, "top", *(call(n, "f", n=n) for n in range(2, 3000)))
    assert len(pairs(wide, wide)) == 2999
    deep = LEAF
    for n in range(2, 3000):
        deep = call(n, "f", deep)
    assert len(pairs(deep, deep)) == 2999
