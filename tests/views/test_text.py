"""A tree as plain text, with any content."""

from datetime import timedelta
from decimal import Decimal

from treefold import NodeState, TokenUsage
from treefold.core.events import Failure
from treefold.core.fact import replace
from treefold.views.text import render
from view_trees import START, call

LEAF = replace(call("leaf", "running", inputs={"n": 1}), id=2, path="1")


def test_every_state_has_its_sign_and_every_call_its_line():
    ended = START + timedelta(seconds=1.5)
    tree = replace(
        LEAF,
        fn="top",
        inputs={},
        children=(
            replace(LEAF, path="1.1", state=NodeState.Success, outputs=2, ended_at=ended),
            replace(
                LEAF, path="1.2", sequence=2, children=(replace(LEAF, state=NodeState.Paused),)
            ),
            replace(LEAF, path="1.3", sequence=2, state=NodeState.Waiting, started_at=None),
            replace(LEAF, sequence=3, state=NodeState.Canceled, exception=Failure("Stop", "why")),
            replace(LEAF, sequence=4, state=NodeState.Error, exception=Failure("ValueError", "no")),
        ),
    )
    assert render(tree, now=START + timedelta(seconds=3)).splitlines() == [
        "● 1 top()  3.0 s",
        "├─ ✓ 1.1 leaf(n=1) → 2  1.5 s",
        "├─ ● 1.2 ∥1/2 leaf(n=1)  3.0 s",
        "│  └─ ‖ 1 leaf(n=1)  3.0 s",
        "├─ · 1.3 ∥2/2 leaf(n=1)",
        "├─ ⊘ 1 leaf(n=1) → Stop: why  3.0 s",
        "└─ ✗ 1 leaf(n=1) → ValueError: no  3.0 s",
    ]


def test_hostile_text_cannot_move_the_cursor_or_break_the_line():
    hostile = "a\x1b[2J\nb\r\x07\u202ec"
    view = replace(
        LEAF,
        fn=hostile,
        inputs={"x": hostile, hostile: 1},
        state=NodeState.Error,
        exception=Failure("E", hostile),
    )
    text = render(view, width=1000, now=START)
    assert "\n" not in text
    assert all(char.isprintable() for char in text)


def test_a_value_that_cannot_show_itself_does_not_hide_the_tree():
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError

    view = replace(LEAF, inputs={"x": Shy()})
    assert render(view, now=START) == "● 1 leaf(x=<Shy: its __repr__ raised RuntimeError>)  0.0 s"


def test_long_lines_are_cut():
    view = replace(LEAF, inputs={"x": "y" * 10_000_000})
    assert max(map(len, render(view, width=60, now=START).splitlines())) <= 60


def test_a_deep_tree_is_no_trouble():
    view = LEAF
    for _ in range(3000):
        view = replace(LEAF, children=(view,))
    assert len(render(view, now=START).splitlines()) == 3001


def test_an_agent_says_what_it_does_and_what_it_spent():
    running = replace(
        LEAF,
        model="m",
        status="tries again in 5 s: \x1b[2Joverloaded",
        total_usage=TokenUsage(input=1200, output=34),
        total_cost=Decimal("0.0123"),
    )
    shown = render(running, now=START)
    assert "… tries again in 5 s: \\x1b[2Joverloaded  1,234 tokens $0.0123  0.0 s" in shown
