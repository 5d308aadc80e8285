"""Views as JSON data, with any content."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from small_journal import write_small_journal
from treefold import (
    ModelText,
    NodeState,
    NodeView,
    Observer,
    Question,
    QuestionKind,
    ThinkingPart,
    TokenUsage,
    ToolResult,
    ToolUse,
    UserText,
    attach,
)
from treefold.core.events import Failure
from treefold.core.fact import replace
from treefold.views import data
from view_trees import START, call

LEAF = replace(call("leaf", "running", inputs={"n": 1}), id=2, path="1", update_seqnum=7)


@pytest.fixture(scope="module")
def observer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observer]:
    path = tmp_path_factory.mktemp("journal") / "run.db"
    write_small_journal(path)
    with attach(path) as observer:
        yield observer


def without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


def test_a_row_says_all_that_a_line_of_a_tree_needs():
    view = replace(
        LEAF,
        is_agent=True,
        model="m",
        status="waits for the model",
        usage=TokenUsage(input=10),
        total_usage=TokenUsage(input=10, cache_write_1h=5),
        cost=None,
        total_cost=Decimal("0.01230"),
        questions=(Question(id="2-1", node_id=2, kind=QuestionKind.Human, text="Why?"),),
        notices=("odd",),
    )
    assert data.row(view, 1) == {
        "id": 2,
        "parent": 1,
        "path": "1",
        "fn": "leaf",
        "agent": True,
        "state": "running",
        "sequence": 1,
        "tied": False,
        "args": "n=1",
        "result": None,
        "error": None,
        "status": "waits for the model",
        "model": "m",
        "started": START.timestamp(),
        "ended": None,
        "tokens": 10,
        "total_tokens": 15,
        "cost": None,
        "total_cost": "0.0123",
        "questions": ["2-1"],
        "notices": 1,
        "seq": 7,
    }


def test_a_row_has_the_result_of_a_call_that_returned_and_the_error_of_one_that_did_not():
    returned = replace(LEAF, state=NodeState.Success)
    raised = replace(LEAF, state=NodeState.Error, exception=Failure("ValueError", "no\n"))
    assert [data.row(view, None)["result"] for view in (LEAF, returned, raised)] == [
        None,
        None,
        None,
    ]
    assert [data.row(view, None)["error"] for view in (LEAF, returned, raised)] == [
        None,
        None,
        "ValueError: no\\n",
    ]


def test_no_line_is_long_or_moves_the_cursor():
    hostile = "\x1b[2J\u202e\ud800" * 1_000_000
    view = replace(
        LEAF,
        fn=hostile,
        inputs={hostile: hostile, "b": [hostile]},
        outputs=hostile,
        exception=Failure(hostile, hostile),
        status=hostile,
        model=hostile,
        state=NodeState.Success,
    )
    lines = [value for value in data.row(view, None).values() if isinstance(value, str)]
    assert len(lines) == 10
    assert all(line.isprintable() for line in lines)
    assert {name: len(value) for name, value in data.row(view, None).items() if value in lines} == {
        "path": 1,
        "fn": 160,
        "state": 7,
        "args": 160,
        "result": 160,
        "error": 160,
        "status": 160,
        "model": 160,
        "cost": 1,
        "total_cost": 1,
    }


def test_rows_come_callers_first_and_in_the_order_of_calls(observer: Observer):
    rows = data.rows(observer.get_view(1))
    assert [(r["id"], r["parent"], r["path"], r["fn"], r["sequence"], r["tied"]) for r in rows] == [
        (1, None, "1", "report", 1, False),
        (2, 1, "1.1", "summarise", 1, True),
        (rows[2]["id"], 2, "1.1.1", "count", 1, False),
        (3, 1, "1.2", "summarise", 1, True),
        (rows[4]["id"], 3, "1.2.1", "count", 1, False),
        (6, 1, "1.3", "publish", 2, False),
    ]
    assert [r["agent"] for r in rows] == [False, True, False, True, False, False]
    assert rows[0]["total_cost"] == "0.06"
    assert rows[5]["error"] == "PermissionError: nobody may publish 'rises'"


def test_a_row_that_becomes_tied_has_changed():
    first = replace(LEAF, id=2, update_seqnum=3)
    top = replace(LEAF, id=1, children=(first,))
    [_, alone] = data.rows(top)
    later = replace(LEAF, id=3, update_seqnum=9)
    third = replace(LEAF, id=4, update_seqnum=12)
    [_, tied, *_] = data.rows(replace(top, children=(first, later, third)))
    assert (alone["tied"], alone["seq"]) == (False, 3)
    assert (tied["tied"], tied["seq"]) == (True, 9)


def test_a_detail_has_the_row_and_the_rest(observer: Observer):
    view = observer.get_view(2)
    detail = data.detail(view, 1, tied=True)
    more = ["inputs", "outputs", "values", "exception", "partial", "partial_output"]
    extra = [*more, "usage", "total_usage", "held_back", "notices", "questions", "transcript"]
    row = data.row(view, 1, tied=True)
    assert without(detail, *extra) == without(row, "notices", "questions")
    usage = {"cache_read": 0, "cache_write": 0, "input": 20, "reasoning": 0, "output": 10}
    usage["total"] = 30
    child = view.children[0].id
    assert {name: detail[name] for name in extra} == {
        "inputs": {"text": "The sea rises."},
        "outputs": "rises",
        "values": [],
        "exception": None,
        "partial": "",
        "partial_output": None,
        "usage": usage,
        "total_usage": usage,
        "held_back": "",
        "notices": [],
        "questions": [],
        "transcript": [
            {"kind": "user", "text": "Shorter: The sea rises.", "length": 23},
            {
                "kind": "thinking",
                "text": "Count first,\nthen say rises.",
                "length": 28,
                "redacted": False,
            },
            {"kind": "text", "text": "I count.", "length": 8},
            {
                "kind": "call",
                "text": '{"text": "rises and rises"}',
                "length": 27,
                "id": "c1",
                "name": "count",
                "args": {"text": "rises and rises"},
                "node": child,
                "path": "1.1.1",
                "fault": None,
            },
            {
                "kind": "result",
                "text": "3",
                "length": 1,
                "id": "c1",
                "error": False,
                "node": child,
                "path": "1.1.1",
            },
            {"kind": "text", "text": "rises", "length": 5},
        ],
    }
    assert [data.part_text(view, index) for index in (1, 3)] == [
        "Count first,\nthen say rises.",
        '{"text": "rises and rises"}',
    ]
    for index in (6, -1):
        with pytest.raises(IndexError):
            data.part_text(view, index)


def test_the_details_of_a_tree_know_their_callers(observer: Observer):
    view = observer.get_view(1)
    details = data.details(view)
    kept = ("notices", "questions")
    assert [without(details[row["id"]] | row, *kept) for row in data.rows(view)] == [
        without(detail, *kept) for detail in details.values()
    ]
    assert details[6]["exception"] == {
        "type": "PermissionError",
        "message": "nobody may publish 'rises'",
    }


def test_long_texts_are_cut_and_say_how_long_they_are():
    long = "x" * 1_000_000
    view = replace(
        LEAF,
        inputs={"a": long, "b": long},
        outputs={"deep": [long, long]},
        values=(long, 1, 2),
        exception=Failure("E", long),
        notices=(long,),
        transcript=(UserText(long), ToolUse("1", "f", {"a": long})),
    )
    found = data.detail(view, limit=100)
    assert len(json.dumps(found)) < 5000
    assert {**found["inputs"]["b"], "$text": 0} == {"$text": 0, "length": 1_000_000}
    assert found["transcript"][0] == {"kind": "user", "text": "x" * 100, "length": 1_000_000}
    assert data.detail(view, limit=None)["inputs"] == {"a": long, "b": long}
    assert data.part_text(view, 0) == long


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError


def test_whatever_is_in_a_call_its_detail_is_json():
    endless: list[Any] = []
    endless.append(endless)
    odd = {
        "shy": Shy(),
        "half": "\ud800",
        "bytes": b"\xff",
        "nan": float("nan"),
        "large": 10**5000,
        "set": {3, 1, 2},
        "keys": {1: "a", (1, 2): "b", "\ud800": "c"},
        "endless": endless,
        "path": Path("/x"),
        "time": timedelta(seconds=1),
    }
    view = replace(LEAF, inputs=odd, outputs=odd, values=(odd,), state=NodeState.Success)
    found = data.detail(view)
    written = json.dumps(
        found, allow_nan=False, ensure_ascii=False
    ).encode()  # as a server sends it
    inputs = json.loads(written)["inputs"]
    assert without(inputs, "endless") == {
        "shy": {"$repr": "<Shy: its __repr__ raised RuntimeError>"},
        "half": "\\ud800",
        "bytes": {"$repr": "b'\\xff'"},
        "nan": {"$repr": "nan"},
        "large": {"$repr": hex(10**5000)},
        "set": [1, 2, 3],
        "keys": {"1": "a", "(1, 2)": "b", "\\ud800": "c"},
        "path": "/x",
        "time": "PT1S",
    }


def test_calls_and_results_are_linked_to_their_nodes_even_if_ids_come_again():
    def call(id: int, fn: str = "f") -> NodeView:
        return replace(LEAF, id=id, fn=fn, tool_use_id="1")

    transcript = (
        ToolUse("1", "f"),
        ToolResult("1", "a"),
        ToolUse.unreadable("1", "f", "{"),
        ToolResult("1", "no", is_error=True),
        ToolUse("1", "nothing"),
        ToolResult("1", "no", is_error=True),
        ToolUse("1", "f"),
        ToolResult("1", "b"),
        ModelText("done"),
    )
    view = replace(LEAF, children=(call(11), call(12), call(13)), transcript=transcript)
    parts = data.transcript(view)
    nodes = [11, 11, None, None, None, None, 13, 13, None]  # 12 failed, and was made again as 13
    assert [part.get("node") for part in parts] == nodes
    assert [part["text"] for part in parts if part["kind"] == "call"] == ["{}", "{", "{}", "{}"]


def test_redacted_thinking_says_so():
    view = replace(LEAF, transcript=(ThinkingPart("", redacted=True),))
    assert data.transcript(view) == [
        {"kind": "thinking", "text": "", "length": 0, "redacted": True}
    ]


def test_a_run_in_a_list_says_how_much_of_it_waits(observer: Observer):
    report, failed, asking = (data.tree(row, 1) for row in observer.trees())
    assert without(asking, "started", "ended") == {
        "id": 8,
        "number": 3,
        "key": "",
        "function": "deploy",
        "state": "paused",
        "open": True,
        "parked": True,
        "asleep_until": None,
        "source": None,
        "source_number": None,
        "questions": 1,
    }
    assert (report["key"], failed["state"]) == ("nightly", "error")
    assert data.question(observer.questions()[0]) == {
        "id": "8-1",
        "node": 8,
        "kind": "human",
        "text": "Deploy?",
        "choices": ["yes", "no"],
        "form": None,
        "default": None,
        "expires": None,
        "to": "",
        "escalations": [],
    }
