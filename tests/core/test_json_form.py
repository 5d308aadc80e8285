"""The JSON form of events, views and questions, and its schema."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from treefold import (
    AgentFunction,
    Budget,
    Frame,
    ModelText,
    NodeState,
    NodeView,
    Question,
    QuestionKind,
    Runtime,
    ThinkingPart,
    TokenUsage,
    ToolResult,
    ToolUse,
    UserText,
    attach,
    events,
)
from treefold.core.events import CallOptions, Failure, Stop, StopCause
from treefold.core.fact import fields_of, replace
from treefold.core.guards import Guards, HookGuard
from treefold.core.json_form import kinds_of
from treefold.core.question import Answer, Escalation
from treefold.models import Exchange, Finish
from treefold.testing import ScriptedModel

DOCS = Path(__file__).parents[2] / "docs"
AT = 1767225600.0
USAGE = TokenUsage(input=10, cache_write_1h=2, output=5)
PARTS = (
    UserText("Hi"),
    ThinkingPart("hm", signature="sig"),
    ModelText("Hello"),
    ToolUse("call_1", "add", {"a": 1}),
    ToolResult("call_1", "2"),
)
QUESTION = Question(
    id="2-1", node_id=2, kind=QuestionKind.Approval, text="May it?", choices=("allow", "deny")
)
TYPED = Question(
    id="2-2",
    node_id=2,
    kind=QuestionKind.Human,
    text="How many?",
    form={"type": "integer"},
    default="1",
    expires=AT,
    to="team",
    escalations=(Escalation(AT, "boss"),),
)
FAILURE = Failure("HTTP 529", "overloaded", "httpx")
EXCHANGE = Exchange(
    dialect="openai-chat", sent=("{}",), received=("{}",), finish=Finish.ANSWERED, usage=USAGE
)
OPTIONS = CallOptions(timeout=float("inf"), model="local", budget=Budget(usd=Decimal("0.50")))
EVENTS = [
    events.AgentEdited(2, prompt="Be brief.", model=None),
    events.ArgumentsEdited(2, {"a": 2}),
    events.CallAllowed(2),
    events.CallEnded(
        2, NodeState.Canceled, AT, None, FAILURE, Stop(StopCause.Timeout, "too slow", "1.1")
    ),
    events.CallInherited(2, 1, "key", 1, "add", is_agent=False),
    events.CallPaused(2, AT, "it was paused"),
    events.CallReopened(2, AT),
    events.CallRequested(1, None, 1, 1, "add", {"a": 1}, "call_1", OPTIONS, "=nightly"),
    events.CallResumed(2, AT),
    events.CallStarted(2, AT),
    events.ConversationOpened(2, "local", "You add.", ("add",), "none", PARTS),
    events.LeaseAwaited(2, AT),
    events.RateAwaited(2, 1767225600.0, 1.5),
    events.BudgetAwaited(2, AT, "the runtime"),
    events.NoticeGiven(2, "mind the gap", (1,)),
    events.HookDecided(2, "post_tool_use", "1/c", "hidden"),
    events.MessagePosted(2, AT, "a1", "mind the gap"),
    events.ProcessDied(1, AT, 2),
    events.QuestionAsked(2, AT, QUESTION),
    events.QuestionEscalated(2, AT, TYPED),
    events.QuestionNotified(2, AT, TYPED),
    events.QuestionSettled(2, AT, "2-1", Answer("allow", args={"a": 3})),
    events.RequestFailed(2, AT, FAILURE, USAGE, Decimal("0.0100")),
    events.RequestRetried(2, AT, 1, FAILURE, 5.0),
    events.RequestSent(2, AT, PARTS[:1]),
    events.ResponseCompleted(2, AT, EXCHANGE, PARTS, USAGE, None, 1),
    events.ResponseStreamed(2, 4, "more", {"title": "A"}),
    events.TreeForked(
        9, AT, "#9", 2, "add", is_agent=False, source=1, inherited=1, cut=3, length=4, reopened=(1,)
    ),
    events.TreeResumed(1, AT),
    events.TreeHeldBack(1, "guarded by main:approve"),
    events.TreeImported(1),
    events.ImportAccepted(1, AT),
    events.GuardsAdded(
        1, Guards(("add",), ("bash",), (HookGuard("pre_tool_use", "main:approve", "bash"),))
    ),
    events.GuardsLifted(1, AT, ("main:approve",)),
    events.ValueSent(2, 0.5),
]
CHILD = NodeView(
    id=2,
    path="1.1",
    fn="add",
    inputs={"a": 1},
    outputs=2,
    exception=FAILURE,
    state=NodeState.Error,
    values=(1, 2),
    children=(),
    sequence=1,
    is_agent=True,
    model="local",
    transcript=PARTS,
    usage=USAGE,
    cost=Decimal("1.50"),
    questions=(QUESTION,),
    started_at=datetime.fromtimestamp(AT, UTC),
    ended_at=None,
    update_seqnum=7,
)
VIEW = NodeView(
    id=1,
    path="1",
    fn="plan",
    inputs={},
    outputs=None,
    exception=None,
    state=NodeState.Running,
    values=(),
    children=(CHILD,),
    sequence=1,
    cost=None,
    started_at=None,
    ended_at=None,
    update_seqnum=7,
)
OTHERS = [
    VIEW,
    QUESTION,
    Frame(function="add", kind="code", node_id=2, path="1.1", usage=USAGE, cost=Decimal(1)),
    USAGE,
]


def names(data: dict[str, Any]) -> set[str]:
    return set(data) - {"schema", "type"}


def test_every_event_is_covered_here_and_public():
    kinds = {getattr(events, name) for name in dir(events)}
    ours = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, events.Event)}
    assert {type(event) for event in EVENTS} == ours - {events.Event}
    assert {kind.__name__ for kind in kinds_of(events.Event)} <= {one.__name__ for one in ours}


@pytest.mark.parametrize("value", [*EVENTS, *OTHERS], ids=lambda value: type(value).__name__)
def test_the_json_form_is_as_its_schema_says(value: Any):
    schema, data = events.event_schema(), value.to_json()
    travelled = json.loads(json.dumps(data, allow_nan=False))
    Draft202012Validator(schema).validate(travelled)
    assert travelled == data
    assert (data["schema"], data["type"]) == (1, type(value).__name__)
    described = schema["$defs"][type(value).__name__]
    assert names(data) == set(described["properties"]) == set(described["required"])
    known = {field.name for field in fields_of(type(value))}
    assert names(data) - known <= {"node", "function", "total"}


def test_the_schema_in_the_docs_is_the_one_of_the_code():
    told = json.loads((DOCS / "reference" / "events.schema.json").read_text())
    fresh = (
        "write it anew: python -m treefold.core.event_schema > docs/reference/events.schema.json"
    )
    assert told == events.event_schema(), fresh


def test_the_page_in_the_docs_names_every_event():
    page = (DOCS / "reference" / "events.md").read_text()
    for event in EVENTS:
        assert f"`{type(event).__name__}`" in page


def test_a_view_is_an_object_for_each_call():
    data = VIEW.to_json()
    [child] = data["children"]
    assert {name: child[name] for name in ("id", "path", "function", "state", "started_at")} == {
        "id": 2, "path": "1.1", "function": "add", "state": "error", "started_at": AT
    }  # fmt: skip
    assert child["exception"] == {"type": "HTTP 529", "message": "overloaded"}
    assert (data["cost"], child["cost"]) == (None, "1.5")
    assert child["usage"] == {
        "input": 10, "cache_read": 0, "cache_write": 0, "cache_write_1h": 2, "reasoning": 0,
        "output": 5, "total": 17,
    }  # fmt: skip
    assert child["questions"] == [
        {
            "id": "2-1", "node": 2, "kind": "approval", "text": "May it?",
            "choices": ["allow", "deny"], "form": None, "default": None, "expires": None,
            "to": "", "escalations": [],
        }
    ]  # fmt: skip
    assert [part["type"] for part in child["transcript"]] == [
        "UserText", "ThinkingPart", "ModelText", "ToolUse", "ToolResult"
    ]  # fmt: skip


def test_what_cannot_be_sent_becomes_something_harmless():
    odd = {"bytes": b"\x00", "object": object, "nan": float("nan"), "big": 2**60, "lone": "\ud800"}
    data = events.ValueSent(2, odd).to_json()
    assert json.loads(json.dumps(data, allow_nan=False))["value"] == {
        "bytes": {"$repr": "b'\\x00'"},
        "object": {"$repr": "<class 'object'>"},
        "nan": {"$repr": "nan"},
        "big": {"$repr": "1152921504606846976"},
        "lone": "\\ud800",
    }


def test_what_is_too_long_is_cut():
    ended = events.CallEnded(2, NodeState.Error, AT, "x" * 50, Failure("Error", "y" * 50))
    data = ended.to_json(limit=20)
    assert data["outputs"] == {"$text": "x" * 19, "length": 50}
    assert data["exception"]["message"] == "y" * 19 + "…"
    assert ended.to_json(limit=None)["outputs"] == "x" * 50
    long = events.ValueSent(2, "z" * 150_000).to_json()["value"]
    assert long["length"] == 150_000
    assert len(long["$text"]) < 100_000


def test_a_tree_may_be_deeper_than_json_can_be():
    view = CHILD
    for _ in range(2000):
        view = replace(VIEW, children=(view,))
    data = json.loads(json.dumps(view.to_json()))
    depth = 0
    while "children" in data:
        data, depth = data["children"][0], depth + 1
    assert data == {"$more": 1}
    assert depth == 100


def test_events_that_were_read_from_a_journal_have_the_json_form_of_those_that_happened(
    tmp_path: Path,
):
    plan = AgentFunction("plan", "Plan.", user_prompt_template="Plan.")
    with Runtime([plan], models=ScriptedModel("Done."), store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(plan)
        happened = [event.to_json() for event in runtime.events(node)]
    with attach(tmp_path / "run.db") as observer:
        read = [event.to_json() for event in observer.events(node.id)]
    assert "ResponseCompleted" in {event["type"] for event in read}
    assert read == happened
