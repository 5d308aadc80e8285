"""A tree as styled lines for a terminal of any width, with any content."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from treefold import NodeView, Question, QuestionKind, TokenUsage
from treefold.core.events import Failure
from treefold.views.styled import styled_lines, to_ansi
from view_trees import after, call, planted

HOSTILE = "a\x1b[2J\nb\r\x07\u202ec [bold]x[/bold] :smile: \x9b31m界界界"


def plain(view: NodeView, columns: int = 100, rows: int = 40, seconds: float = 9) -> list[str]:
    """Return what there is to read."""
    frame = styled_lines(view, columns, rows, after(seconds))
    return ["".join(segment.text for segment in line).rstrip() for line in frame]


def asking(text: str, *choices: str) -> NodeView:
    kind = QuestionKind.Human
    question = Question(id="1-1", node_id=1, kind=kind, text=text, choices=choices)
    return call("ask", "paused", start=5, questions=(question,))


def test_states_ties_activity_tokens_money_time_and_totals_are_shown():
    agent: dict[str, Any] = {"is_agent": True, "model": "m"}
    spent: dict[str, Any] = {
        "total_usage": TokenUsage(input=1200, output=34),
        "total_cost": Decimal("0.0123"),
    }
    tree = planted(
        call(
            "top", "running",
            call("a", "success", end=1.5, inputs={"n": 1}, outputs="x", **agent, **spent),
            call("b", "running", sequence=2, start=2, status="waits for the model", **agent),
            call("c", "running", sequence=2, partial="The sea\nrises", **agent),
            call("d", "waiting", sequence=3),
            call("e", "error", sequence=4, end=3, exception=Failure("ValueError", "no")),
            call("f", "canceled", sequence=5, end=3),
            asking("Red or blue?", "r", "b"),
            **spent,
        )
    )  # fmt: skip
    assert plain(tree, columns=80) == [
        "● 1 top()                                              1,234 tok  $0.0123  9.0 s",
        "├─ ✓ 1.1 ∥1/2 a(n=1) → 'x'                             1,234 tok  $0.0123  1.5 s",
        "├─ ● 1.2 ∥1/2 b() … waits for the model                                    7.0 s",
        "├─ ● 1.3 ∥2/2 c() The sea rises                                            9.0 s",
        "├─ · 1.4 d()",
        "├─ ✗ 1.5 e() → ValueError: no                                              3.0 s",
        "├─ ⊘ 1.6 f()                                                               3.0 s",
        "└─ ? 1.7 ∥2/2 ask()  Red or blue? [r / b]                                  4.0 s",
        " ? 1   ✓ 1/8  ✗ 1  ⊘ 1  ● 2  · 1  9.0 s  1,234 tok  $0.0123",
    ]
    assert plain(tree, columns=140)[-1] == (
        " ? 1 waits for you   ✓ 1 of 8 done  ✗ 1 failed  ⊘ 1 canceled  ● 2 running"
        "  · 1 not begun  1 waiting for calls  1,234 tokens  $0.0123  9.0 s"
    )


def test_an_agent_that_streams_shows_its_last_words():
    said = "The sea rises and falls. " * 400 + "And so on, to the very end"
    tree = planted(call("write", "running", partial=said, is_agent=True))
    first, _ = plain(tree, columns=60)
    assert first == "● 1 write() …es and falls. And so on, to the very end  9.0 s"


def test_a_price_that_is_not_known_is_not_guessed():
    tree = planted(call("top", "running", total_usage=TokenUsage(input=5), total_cost=None))
    assert plain(tree)[-1] == "✓ 0 of 1 done  ● 1 running  5 tokens  price unknown  9.0 s"


@pytest.mark.parametrize("columns", [1, 5, 12, 20, 39, 40, 41, 60, 79, 200])
def test_hostile_and_wide_text_breaks_no_line(columns: int):
    tree = planted(
        call(
            HOSTILE, "running",
            call("错", "error", inputs={HOSTILE: HOSTILE}, exception=Failure("E", HOSTILE), end=1),
            call("说", "running", partial=HOSTILE * 20, is_agent=True, notices=(HOSTILE,)),
            call("状态", "running", status=HOSTILE, is_agent=True, notices=(HOSTILE * 9,)),
            call("x", "success", outputs="👍🏽❤️界" * 100, inputs={"界": "界" * 10_000_000}, end=1),
            asking(HOSTILE, HOSTILE),
        )
    )  # fmt: skip
    for rows in (2, 3, 40):
        shown = plain(tree, columns, rows)
        assert len(shown) <= rows
        assert all(char.isprintable() for line in shown for char in line)
        assert max(map(cell_len, shown)) <= columns


def test_markup_of_others_is_shown_and_not_followed():
    tree = planted(call("f", "success", end=1, inputs={"x": "[red]:smile:[/red]"}))
    assert plain(tree)[0].startswith("✓ 1 f(x='[red]:smile:[/red]')")


@given(st.text(), st.integers(1, 120))
def test_any_text_fits_any_width(text: str, columns: int):
    tree = planted(call("f", "running", asking(text, text), partial=text, inputs={"x": text}))
    shown = plain(tree, columns)
    assert max(map(cell_len, shown)) <= columns
    assert all(char.isprintable() for line in shown for char in line)


def test_a_call_far_down_is_still_named():
    view = call("leaf", "running")
    for _ in range(60):
        view = call("node", "running", view)
    shown = plain(planted(view), columns=300, rows=100)
    assert "● 1.1.1" in shown[60]
    assert "leaf()" in shown[60]


def test_long_times_are_told_in_minutes_and_hours():
    tree = planted(call("f", "running"))
    times = [plain(tree, seconds=seconds)[0].split("f()")[1].strip() for seconds in (99, 125, 7384)]
    assert times == ["99.0 s", "2:05 min", "2:03:04 h"]


def test_colours_can_be_left_out_and_shapes_stay():
    line, _ = styled_lines(planted(call("f", "error", end=1)), 40, 5, after(1))
    assert "\x1b[1;31m✗ " in to_ansi(line, coloured=True)
    assert "\x1b[1m✗ " in to_ansi(line, coloured=False)
