"""A tree is a fold over its events."""

from treefold import NodeState, NodeView
from treefold.core.arriving import ArrivingResponse
from treefold.core.events import CallEnded, CallRequested, CallStarted, Event, Failure, ValueSent
from treefold.core.model_events import TextDelta
from treefold.core.record import TreeFold
from treefold.core.snapshot import snapshot

STORY: list[Event] = [
    CallRequested(1, None, 7, 7, "plan", {"goal": "tea"}),
    CallStarted(1, 100.0),
    CallRequested(2, 1, 1, 1, "boil", {}),
    CallRequested(3, 1, 2, 1, "fetch", {"what": "cup"}),
    CallStarted(2, 101.0),
    CallStarted(3, 101.5),
    ValueSent(2, "warm"),
    ValueSent(2, "hot"),
    CallEnded(3, NodeState.Error, 102.0, None, Failure("LookupError", "no cup")),
    CallEnded(2, NodeState.Success, 103.0, "boiling"),
    CallEnded(1, NodeState.Success, 104.0, "tea"),
]


def summary(view: NodeView) -> tuple[object, ...]:
    return (view.path, view.fn, view.state.value, view.sequence, *map(summary, view.children))


def views(fold: TreeFold) -> dict[int, NodeView]:
    return {id: snapshot(fold[id]) for id in fold}


def test_the_fold_tells_the_whole_story():
    fold = TreeFold()
    fold.apply_all(STORY)
    root = snapshot(fold[1])

    assert summary(root) == (
        "7",
        "plan",
        "success",
        7,
        ("7.1", "boil", "success", 1),
        ("7.2", "fetch", "error", 1),
    )
    boil, fetch = root.children
    assert (root.inputs, root.outputs) == ({"goal": "tea"}, "tea")
    assert (boil.values, boil.outputs) == (("warm", "hot"), "boiling")
    assert str(fetch.exception) == "LookupError: no cup"
    assert root.started_at is not None
    assert root.ended_at is not None
    assert (root.ended_at - root.started_at).total_seconds() == 4.0
    assert root.update_seqnum == len(STORY)


def test_it_does_not_matter_in_which_portions_the_events_come():
    at_once = TreeFold()
    at_once.apply_all(STORY)
    one_by_one = TreeFold()
    for event in STORY:
        one_by_one.apply(event)

    assert summary(snapshot(one_by_one[1])) == summary(snapshot(at_once[1]))


def test_only_what_changed_and_what_is_above_it_gets_a_new_view():
    fold = TreeFold()
    fold.apply_all(STORY[:6])
    before = views(fold)
    fold.apply_all(STORY[6:7])  # node 2 sends a value

    assert snapshot(fold[3]) is before[3]
    assert snapshot(fold[2]) is not before[2]
    assert snapshot(fold[1]) is not before[1]
    assert [snapshot(fold[id]).update_seqnum for id in (1, 2, 3)] == [7, 7, 6]


def test_a_view_is_waiting_then_running_then_ended():
    fold = TreeFold()
    states: list[str] = []
    for event in [STORY[0], STORY[1], STORY[-1]]:
        fold.apply(event)
        states.append(snapshot(fold[1]).state.value)

    assert states == ["waiting", "running", "success"]


def test_a_tree_may_be_deeper_than_the_stack():
    fold = TreeFold()
    depth = 5000
    fold.apply_all([CallRequested(1, None, 1, 1, "f", {})])
    fold.apply_all([CallRequested(id, id - 1, 1, 1, "f", {}) for id in range(2, depth + 1)])

    assert snapshot(fold[depth]).path.count(".") == depth - 1
    assert snapshot(fold[1]).update_seqnum == depth
    assert "children=(<NodeView 1.1.1 f waiting>), sequence=1," in repr(snapshot(fold[2]))


def test_a_partial_text_changes_a_view_and_no_number():
    fold = TreeFold()
    fold.apply_all(STORY[:5])
    fold.apply_all(STORY[5:8])
    numbers = {id: view.update_seqnum for id, view in views(fold).items()}
    assert numbers == {1: 8, 2: 8, 3: 6}
    fold.apply(ValueSent(3, "spoon"))
    arriving = ArrivingResponse()
    arriving.add(TextDelta("Almost"))
    fold.show_arriving(2, arriving)
    streaming = snapshot(fold[2])
    assert (streaming.partial, streaming.status) == ("Almost", "receives a response")
    assert snapshot(fold[1]).children == (snapshot(fold[2]), snapshot(fold[3]))
    assert {id: view.update_seqnum for id, view in views(fold).items()} == {1: 9, 2: 8, 3: 9}
