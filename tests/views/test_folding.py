"""Which calls of a tree are shown if not all of them fit."""

from treefold import NodeState, NodeView, Question, QuestionKind
from treefold.core.fact import replace
from treefold.views.folding import CallCounter, CallCounts, CallRow, MoreRow, Row, fold
from view_trees import START, call, planted

QUESTION = Question(id="1-1", node_id=1, kind=QuestionKind.Human, text="Red or blue?")


def lines(rows: list[Row]) -> list[str]:
    """Return what the rows are about, as text."""
    shown: list[str] = []
    for row in rows:
        if isinstance(row, MoreRow):
            shown.append(f"{row.lead}{' '.join(f'{s} {n}' for s, n in row.states.items())} more")
        else:
            hidden = f" +{row.hidden}" if row.hidden else ""
            shown.append(f"{row.lead}{row.view.path} {row.view.fn} {row.view.state}{hidden}")
    return shown


def done(n: int) -> list[NodeView]:
    return [call(f"done{i}", "success", start=i, end=i + 1) for i in range(n)]


def test_everything_is_shown_if_there_is_room():
    tree = planted(call("top", "running", call("a", "success", call("b", "success", end=1), end=1)))
    rows = fold(tree, 3, CallCounter())
    assert lines(rows) == ["1 top running", "└─ 1.1 a success", "   └─ 1.1.1 b success"]


def test_calls_that_ended_first_fold_into_one_line_and_those_to_come_into_another():
    later = [call("later", "waiting") for _ in range(60)]
    tree = planted(call("top", "running", *done(40), call("now", "running"), *later))
    assert lines(fold(tree, 6, CallCounter())) == [
        "1 top running",
        "├─ success 38 more",
        "├─ 1.39 done38 success",
        "├─ 1.40 done39 success",
        "├─ 1.41 now running",
        "└─ waiting 60 more",
    ]


def test_what_waits_for_a_person_failed_or_runs_stays_however_deep_it_is():
    asks = call("ask", "paused", questions=(QUESTION,))
    busy = call("branch", "running", *done(50), call("deep", "running", asks))
    failed = call("bad", "error", end=3)
    tree = planted(call("top", "running", *done(50), failed, *done(50), busy, *done(50)))
    assert lines(fold(tree, 7, CallCounter())) == [
        "1 top running",
        "├─ success 150 more",
        "├─ 1.51 bad error",
        "└─ 1.102 branch running",
        "   ├─ success 50 more",
        "   └─ 1.102.51 deep running",
        "      └─ 1.102.51.1 ask paused",
    ]


def test_a_call_that_ended_stands_for_all_below_it():
    big = call("big", "success", *done(30), end=9)
    tree = planted(call("top", "running", big, call("now", "running")))
    assert lines(fold(tree, 3, CallCounter())) == [
        "1 top running",
        "├─ 1.1 big success +30",
        "└─ 1.2 now running",
    ]


def test_a_tree_that_ended_shows_as_much_as_fits_from_the_top():
    tree = planted(call("top", "success", call("a", "success", *done(3), end=5), *done(3), end=9))
    assert lines(fold(tree, 5, CallCounter())) == [
        "1 top success",
        "├─ 1.1 a success +3",
        "├─ 1.2 done0 success",
        "├─ 1.3 done1 success",
        "└─ 1.4 done2 success",
    ]


def test_the_way_to_why_a_tree_failed_is_shown():
    bad = call("bad", "error", call("worse", "error", end=1), end=2)
    tree = planted(call("top", "error", *done(30), bad, *done(30), end=9))
    assert lines(fold(tree, 3, CallCounter())) == [
        "1 top error +60",
        "└─ 1.31 bad error",
        "   └─ 1.31.1 worse error",
    ]


def test_there_are_never_more_lines_than_fit_and_as_many_as_fit():
    branches = [
        call(f"branch{i}", "running", *done(i), call("now", "running"), call("next", "waiting"))
        for i in range(12)
    ]
    tree = planted(call("top", "running", *branches))
    for room in range(1, 120):
        rows = fold(tree, room, CallCounter())
        assert room - 3 <= len(rows) <= room or len(rows) == CallCounter().count(tree).calls
        shown = sum(isinstance(row, CallRow) for row in rows)
        folds = sum(sum(row.states.values()) for row in rows if isinstance(row, MoreRow))
        assert shown + folds <= CallCounter().count(tree).calls


def test_calls_are_counted_once_and_only_what_changed_is_counted_again():
    counter = CallCounter()
    old = planted(
        call("top", "running", *done(3), call("now", "running"), call("later", "waiting"))
    )
    assert counter.count(old) == CallCounts(6, 3, 0, 0, 1, 0, 1, 0, 1)
    *same, _, later = old.children
    ended = replace(old.children[3], state=NodeState.Error, ended_at=START, update_seqnum=2)
    new = replace(old, children=(*same, ended, later), update_seqnum=2)
    assert counter.count(new) == CallCounts(6, 3, 1, 0, 0, 0, 1, 0, 1)


def test_a_deep_tree_is_no_trouble():
    view = replace(call("leaf", "running"), id=4000)
    for id in range(3999, 0, -1):
        view = replace(call("node", "running", view), id=id)
    assert CallCounter().count(view).calls == 4000
    assert len(fold(view, 40, CallCounter())) == 40
