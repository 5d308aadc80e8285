"""The JSON API: every route, and every error response."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

import treefold
import warm_python
from support import wait
from treefold import (
    CodeFunction,
    HookDecision,
    MemoryStore,
    Node,
    Observer,
    RunContext,
    Runtime,
    ToolUse,
    agent,
)
from treefold.core.question import QuestionKind
from treefold.testing import ScriptedModel
from treefold.version import __version__
from treefold.views import data
from treefold.views.web import Viewer, view
from view_trees import flat
from viewing import client_of


@pytest.fixture
def observer(journal: Path) -> Iterator[Observer]:
    with treefold.attach(journal) as made:
        yield made


def got(client: httpx.Client, path: str) -> Any:
    """Return what a path gives, which is as JSON reads it."""
    response = client.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def same(value: Any) -> Any:
    return json.loads(json.dumps(value))


# --- what there is


def test_the_journal_has_a_name(client: httpx.Client, observer: Observer):
    assert got(client, "/api/journal") == {
        "name": "run.db",
        "driven": observer.is_driven,
        "version": __version__,
    }


def test_runs_are_listed_newest_last_with_their_questions(client: httpx.Client, observer: Observer):
    rows = observer.trees()
    asked = [0, 0, 1]
    trees = [data.tree(row, count) for row, count in zip(rows, asked, strict=True)]
    assert got(client, "/api/trees")["trees"] == same(trees)


def test_runs_are_filtered_and_counted(client: httpx.Client):
    found = got(client, "/api/trees?state=asking&function=deploy")
    assert [tree["function"] for tree in found["trees"]] == ["deploy"]
    assert (found["matching"], found["total"]) == (1, 3)
    assert got(client, "/api/trees?q=no+such+run&page=nine")["trees"] == []


def test_summaries_are_those_of_the_runs_that_are_asked_for(
    client: httpx.Client, observer: Observer
):
    trees = [tree.id for tree in observer.trees()]
    found = got(client, f"/api/summaries?ids={trees[0]},{trees[2]},999999,x,")["summaries"]
    assert found == {
        str(id): same(data.summary(observer.get_view(id))) for id in (trees[0], trees[2])
    }
    assert got(client, "/api/summaries")["summaries"] == {}


def test_questions_say_where_they_come_from(client: httpx.Client, observer: Observer):
    [question] = observer.questions()
    top = observer.trees()[-1].id
    place = {"tree": top, "path": "3", "fn": "deploy"}
    assert got(client, "/api/questions") == {"questions": [data.question(question) | place]}


def test_a_call_is_told_in_detail_with_its_caller_and_its_tie(
    client: httpx.Client, observer: Observer
):
    top = observer.get_view(1)
    first, other, failed = top.children
    [counted] = first.children
    for call, parent, tied in [
        (top, None, False),
        (first, 1, True),
        (other, 1, True),
        (failed, 1, False),
        (counted, first.id, False),
    ]:
        told = data.detail(call, parent, tied=tied)
        assert got(client, f"/api/nodes/{call.id}") == same(told)


def test_a_long_text_is_cut_and_its_part_gives_all_of_it():
    text = "a\u2028<b>\ud83d\x1b[31m" + "long " * 10_000

    @agent
    def speak() -> str:
        return text

    with Runtime([speak], models=ScriptedModel(text), store=MemoryStore()) as runtime:
        node = runtime.invoke(speak)
        node.result()
        with view(runtime, port=0) as viewer, client_of(viewer) as client:
            parts = got(client, f"/api/nodes/{node.id}")["transcript"]
            whole = [got(client, f"/api/nodes/{node.id}/parts/{n}") for n in range(len(parts))]
    seen = text.replace("\ud83d", "\ufffd")  # half a character is in no journal
    assert [part["length"] for part in parts] == [len(text)] * 2
    assert all(len(part["text"]) <= data.LIMIT + 5 for part in parts)
    assert whole == [{"text": seen}] * 2


def test_the_stack_leads_to_what_runs_now(client: httpx.Client, observer: Observer):
    ends = [call.id for call in observer.get_view(1).children]
    for node in 1, ends[0], observer.trees()[-1].id:
        frames = [data.frame(one) for one in observer.stack(node)]
        assert got(client, f"/api/nodes/{node}/stack") == same({"frames": frames})
    assert [frame["fn"] for frame in got(client, f"/api/nodes/{ends[0]}/stack")["frames"]] == [
        "report",
        "summarise",
    ]


def test_where_time_tokens_and_money_went(client: httpx.Client, observer: Observer):
    top = observer.get_view(1)
    assert got(client, "/api/trees/1/flame") == same(data.flame(top, "time"))
    for by in "time", "tokens", "money":
        assert got(client, f"/api/trees/1/flame?by={by}") == same(data.flame(top, by))


def test_why_a_run_took_so_long(client: httpx.Client, observer: Observer):
    assert got(client, "/api/trees/1/timing") == same(data.timing(observer.get_view(1)))


def test_the_newest_runs_are_summed(client: httpx.Client, observer: Observer):
    views = [observer.get_view(tree.id) for tree in observer.trees()]
    for asked, summed in [("", 3), ("?runs=2", 2), ("?runs=500", 3)]:
        found = got(client, f"/api/totals{asked}")
        assert (found["runs"], found["all"], found["unreadable"]) == (summed, 3, 0)
        names = {one.fn for view in views[-summed:] for one in flat(view)}
        assert {one["name"] for one in found["functions"]} == names
        tokens = sum(view.total_usage.total for view in views[-summed:])
        assert sum(one["tokens"] for one in found["functions"]) == tokens
        assert sum(one["tokens"] for one in found["models"]) == tokens


def test_two_runs_side_by_side(client: httpx.Client, observer: Observer):
    first, other, _ = observer.get_view(1).children
    for a, b in (first, other), (first, first):
        told = data.difference(a, b)
        assert got(client, f"/api/difference?a={a.id}&b={b.id}") == same(told)


def test_what_was_said_is_found_whatever_its_case(client: httpx.Client, observer: Observer):
    top = observer.get_view(1)
    first, other, failed = top.children
    [counts_rises], [counts_falls] = first.children, other.children
    for text, nodes in [
        ("SUMMAR", [first.id, other.id]),  # a name
        ("the sea R", [1, first.id]),  # inputs
        ("permissionerror", [failed.id]),  # an exception
        ("Say Rises", [first.id]),  # a thought
        ("falls AND falls", [other.id, counts_falls.id]),  # a call and its arguments
        ("i count", [first.id, other.id]),
        ("nowhere", []),
        ("", []),
        ("%", []),
    ]:
        found = client.get("/api/search", params={"tree": 1, "q": text})
        assert (found.status_code, found.json()) == (200, {"nodes": nodes}), text
    assert counts_rises.id in got(client, f"/api/search?tree={first.id}&q=rises")["nodes"]


# --- what is asked for


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    async def deploy(ctx: RunContext) -> str:
        return await ctx.ask("Deploy?", ["yes", "no"])

    async def wish(ctx: RunContext) -> str:
        return await ctx.ask("What?")

    async def pay(ctx: RunContext, amount: int) -> str:
        return f"paid {amount}"

    async def gate(event: treefold.PreToolUseEvent) -> HookDecision | None:
        return HookDecision(ask="Pay?") if event.tool_name == "pay" else None

    paying = CodeFunction(callable=pay)
    functions = [CodeFunction(callable=deploy), CodeFunction(callable=wish)]

    @agent(uses=[paying])
    def shop() -> str:
        return "Buy it."

    calls = [[ToolUse("1", "pay", {"amount": 5})], "done"] * 4
    with Runtime(
        [*functions, shop],
        models=ScriptedModel(*calls),
        hooks={treefold.HOOK_PRE_TOOL_USE: [gate]},
        store=MemoryStore(),
    ) as made:
        yield made


@pytest.fixture
def beside(runtime: Runtime) -> Iterator[httpx.Client]:
    with view(runtime, port=0) as viewer, client_of(viewer) as client:
        yield client


def asked(client: httpx.Client, kind: QuestionKind) -> dict[str, Any]:
    """Wait for the question of that kind."""

    def look() -> dict[str, Any] | None:
        questions = got(client, "/api/questions")["questions"]
        return next((one for one in questions if one["kind"] == kind.value), None)

    return wait(look) or {}


def post(client: httpx.Client, path: str, body: Any = None) -> tuple[int, Any]:
    response = client.post(path, json={} if body is None else body)
    return response.status_code, response.json()


def test_a_person_answers_by_a_choice_or_in_words(runtime: Runtime, beside: httpx.Client):
    for name, text in ("deploy", "Yes"), ("wish", "<b>Peace</b> \U0001f600"):
        node = runtime.invoke(runtime.invocable_functions[name])
        question = asked(beside, QuestionKind.Human)
        assert post(beside, f"/api/questions/{question['id']}", {"text": text}) == (200, {})
        assert node.result() == (text if name == "wish" else "yes")


def test_a_call_is_allowed_denied_or_made_with_other_arguments(
    runtime: Runtime, beside: httpx.Client
):
    for body, words in [
        ({"text": "allow"}, "paid 5"),
        ({"text": "deny: too much"}, "too much"),
        ({"text": "", "args": {"amount": 3}}, "paid 3"),
        ({"args": {"amount": 4}}, "paid 4"),
    ]:
        node = runtime.invoke(runtime.invocable_functions["shop"])
        question = asked(beside, QuestionKind.Approval)
        assert post(beside, f"/api/questions/{question['id']}", body) == (200, {})
        node.result()
        [result] = [part for part in node.get_transcript() if isinstance(part, treefold.ToolResult)]
        assert words in result.content


def test_a_run_is_paused_resumed_and_cancelled(runtime: Runtime, beside: httpx.Client):
    node = runtime.invoke(runtime.invocable_functions["wish"])
    asked(beside, QuestionKind.Human)
    assert post(beside, f"/api/nodes/{node.id}/pause", {"reason": "lunch"}) == (200, {})
    assert asked(beside, QuestionKind.Paused)["text"].startswith("lunch")
    assert post(beside, f"/api/nodes/{node.id}/resume") == (200, {})
    wait(lambda: len(got(beside, "/api/questions")["questions"]) == 1)
    assert post(beside, f"/api/nodes/{node.id}/pause", {"reason": None}) == (200, {})
    paused = asked(beside, QuestionKind.Paused)
    assert post(beside, f"/api/questions/{paused['id']}", {"text": "resume"}) == (200, {})
    wait(lambda: len(got(beside, "/api/questions")["questions"]) == 1)
    assert post(beside, f"/api/nodes/{node.id}/cancel", {"reason": "enough"}) == (200, {})
    with pytest.raises(treefold.CancellationException, match="enough"):
        node.result()


PAYING = """
import sys, threading
from treefold import CodeFunction, Runtime

def pay(ctx) -> str:
    print("begun", flush=True)
    threading.Event().wait()

function = CodeFunction(callable=pay)
runtime = Runtime([function], store=sys.argv[1])
runtime.invoke(function).result()
"""


def test_a_call_whose_end_is_unknown_is_settled(tmp_path: Path):
    def pay(ctx: RunContext) -> str:
        raise AssertionError("it is not run again")

    path = tmp_path / "run.db"
    with subprocess.Popen(
        warm_python.command("-c", PAYING, str(path)), stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "begun\n"
        with view(path, port=0) as viewer, client_of(viewer) as client:
            assert got(client, "/api/journal")["driven"]
            killed.kill()
            killed.wait()
            wait(lambda: not got(client, "/api/journal")["driven"])
            with Runtime([CodeFunction(callable=pay)], store=path) as runtime:
                [node] = runtime.recover()
                question = asked(client, QuestionKind.InDoubt)
                assert question["choices"] == ["retry", "use", "fail"]
                answer = {"text": "use: paid"}
                assert post(client, f"/api/questions/{question['id']}", answer) == (200, {})
                assert node.result() == "paid"


def test_a_run_is_forked_with_another_prompt_arguments_or_result(
    runtime: Runtime, beside: httpx.Client
):
    wish = runtime.invoke(runtime.invocable_functions["wish"])
    question = asked(beside, QuestionKind.Human)
    post(beside, f"/api/questions/{question['id']}", {"text": "Peace"})
    assert wish.result() == "Peace"
    shop = runtime.invoke(runtime.invocable_functions["shop"])
    question = asked(beside, QuestionKind.Approval)
    post(beside, f"/api/questions/{question['id']}", {"text": "allow"})
    shop.result()
    pay = shop.get_children()[0]
    assert isinstance(pay, Node)

    def forked(node: int, body: dict[str, Any]) -> int:
        """Ask for a fork, and wait for it."""
        status, told = post(beside, f"/api/nodes/{node}/fork", body)
        assert status == 200, told
        path = f"/api/forks/{quote(told['key'], safe='')}"
        return wait(lambda: got(beside, path)["node"])

    nothing = {"at": None, "prompt": None, "model": None, "args": None}
    again = forked(wish.id, nothing)
    question = asked(beside, QuestionKind.Human)
    assert question["tree"] == again
    post(beside, f"/api/questions/{question['id']}", {"text": "More"})
    wait(lambda: got(beside, f"/api/nodes/{again}")["outputs"] == "More")

    other = forked(shop.id, {"prompt": "Buy less."})
    wait(lambda: got(beside, f"/api/nodes/{other}")["transcript"])
    assert got(beside, f"/api/nodes/{other}")["transcript"][0]["text"] == "Buy less."

    given = forked(pay.id, {"result": "paid nothing"})
    wait(lambda: "paid nothing" in str(got(beside, f"/api/nodes/{given}")["transcript"]))

    nobody = forked(wish.id, {"result": None})  # as if it had returned nothing: it is not made
    wait(lambda: got(beside, f"/api/nodes/{nobody}")["state"] == "success")
    assert got(beside, f"/api/nodes/{nobody}")["outputs"] is None

    for node, body, said in [
        (wish.id, {"prompt": "x"}, "wish is code: it has no prompt and no model"),
        (shop.id, {"at": -1}, "at=-1: give the number of a response, or 0"),
    ]:
        assert post(beside, f"/api/nodes/{node}/fork", body) == (400, {"error": said})
    assert got(beside, "/api/forks/nothing") == {"node": None, "number": None}


# --- no


def test_what_is_not_there_is_404(client: httpx.Client):
    here = " has no node:99; it may have been deleted"
    for path in [
        "/api/nodes/99",
        "/api/nodes/99/parts/0",
        "/api/nodes/99/stack",
        "/api/trees/99/flame",
        "/api/trees/99/timing",
        "/api/difference?a=1&b=99",
        "/api/search?tree=99&q=x",
        "/api/stream?tree=99",
    ]:
        refused = client.get(path)
        assert refused.status_code == 404, path
        assert refused.json()["error"].endswith(here)
    for name in "pause", "cancel", "resume", "fork":
        status, told = post(client, f"/api/nodes/99/{name}")
        assert (status, told["error"].endswith(here)) == (404, True)
    for part in "9", "-1", "x", "9" * 5000:
        refused = client.get(f"/api/nodes/2/parts/{part}")
        assert (refused.status_code, refused.json()) == (
            404,
            {"error": "the transcript of call 1.1 has 6 parts, from 0"},
        )
    for id in "x", "1.2", "-1", "1e3", "\u0663", "9" * 30, "9" * 5000, "1%00", "NaN":
        for path in f"/api/nodes/{id}", f"/api/trees/{id}/flame":
            refused = client.get(path)
            assert (refused.status_code, list(refused.json())) == (404, ["error"]), path
    for path in "/api", "/api/", "/api/nothing", "/api/nodes", "/api/nodes/1/", "/api//nodes/1":
        refused = client.get(path)
        told = {"error": f"there is no route for GET {path!r}"}
        assert (refused.status_code, refused.json()) == (404, told)


def test_a_question_that_makes_no_sense_is_400(client: httpx.Client):
    for path, said in [
        ("/api/trees/1/flame?by=love", "by must be one of time, tokens, money, got 'love'"),
        ("/api/totals?runs=0", "runs must be a number from 1 to 500, got '0'"),
        ("/api/totals?runs=501", "runs must be a number from 1 to 500, got '501'"),
        ("/api/totals?runs=-1", "runs must be a number from 1 to 500, got '-1'"),
        ("/api/difference?a=1", "b must be the id of a node, got ''"),
        ("/api/difference?a=x&b=1", "a must be the id of a node, got 'x'"),
        ("/api/search?q=x", "tree must be the id of a node, got ''"),
        (f"/api/search?tree=1&q={'x' * 1001}", "q must have at most 1,000 characters, got 1,001"),
        *(
            (
                f"/api/stream?{query}",
                "tree must be the id of a run, and seq a version of it",
            )
            for query in ("tree=x", "tree=1&seq=-1", "tree=1&seq=1.5", f"tree={'9' * 5000}")
        ),
    ]:
        refused = client.get(path)
        assert (refused.status_code, refused.json()) == (400, {"error": said}), path


def test_what_has_ended_or_was_answered_is_409(client: httpx.Client):
    for name, words in [
        ("pause", "publish (run 2) has ended (error), and cannot be paused any more"),
        ("cancel", "publish (run 2) has ended (error), and cannot be cancelled any more"),
    ]:
        node = client.get("/api/trees").json()["trees"][1]["id"]
        assert post(client, f"/api/nodes/{node}/{name}") == (409, {"error": words})
    assert post(client, "/api/nodes/1/resume") == (
        409,
        {"error": "report (run 1) has ended (success), and cannot be resumed any more"},
    )
    [question] = got(client, "/api/questions")["questions"]
    assert post(client, f"/api/questions/{question['id']}", {"text": "yes"}) == (200, {})
    status, told = post(client, f"/api/questions/{question['id']}", {"text": "no"})
    assert status == 409
    assert told["error"].endswith(
        "waits for an answer (it may have been answered already); open: none"
    )
    for id in "nothing", "%00", "9" * 5000, "9999-1":
        assert post(client, f"/api/questions/{id}", {"text": "no"})[0] == 404


def test_an_answer_that_is_none_is_400_and_lists_the_choices(client: httpx.Client):
    [question] = got(client, "/api/questions")["questions"]
    path = f"/api/questions/{question['id']}"
    said = "'maybe' does not answer the question: 'yes', 'no'"
    assert post(client, path, {"text": "maybe"}) == (400, {"error": said})
    said = "a question of the kind human takes no arguments"
    assert post(client, path, {"text": "yes", "args": {}}) == (400, {"error": said})
    assert got(client, "/api/questions")["questions"] == [question]


NOT_JSON = "the request body is not valid JSON"
NO_OBJECT = "the request body must be a JSON object"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", NOT_JSON),
        (b"\xff\xfe{}", NOT_JSON),
        (b'{"text": "\xff"}', NOT_JSON),
        (b"text=yes", NOT_JSON),
        (b'{"text": NaN}', NOT_JSON),
        (b'{"text": ' + b"9" * 5000 + b"}", NOT_JSON),
        (b"[" * 100_000, NOT_JSON),
        (b'{"a":' * 100_000, NOT_JSON),
        (b"{}{}", NOT_JSON),
        (b"null", NO_OBJECT),
        (b"[]", NO_OBJECT),
        (b'"yes"', NO_OBJECT),
        (b'{"test": "yes"}', "unknown field 'test'; this request takes text, args"),
        (b'{"__proto__": {}}', "unknown field '__proto__'; this request takes text, args"),
        (b'{"text": 1}', "text must be a string, got 1"),
        (b'{"text": ["yes"]}', 'text must be a string, got ["yes"]'),
        (b'{"text": "yes", "args": []}', "args must be an object, got []"),
        (b'{"text": "yes", "args": "{}"}', 'args must be an object, got "{}"'),
    ],
    ids=range(18),
)
def test_a_body_that_is_something_else_is_400(client: httpx.Client, body: bytes, said: str):
    [question] = got(client, "/api/questions")["questions"]
    refused = client.post(f"/api/questions/{question['id']}", content=body)
    assert (refused.status_code, refused.json()) == (400, {"error": said})
    assert got(client, "/api/questions")["questions"] == [question]


def test_fields_are_those_of_what_is_asked_for(client: httpx.Client):
    [question] = got(client, "/api/questions")["questions"]
    node = question["node"]
    for name, body, said in [
        ("pause", {"text": "x"}, "unknown field 'text'; this request takes reason"),
        ("pause", {"reason": 1}, "reason must be a string, got 1"),
        ("cancel", {"reason": {}}, "reason must be a string, got {}"),
        ("resume", {"reason": "x"}, "unknown field 'reason'; this request takes no fields"),
        ("fork", {"at": "1"}, 'at must be an integer, got "1"'),
        ("fork", {"at": True}, "at must be an integer, got true"),
        ("fork", {"at": 1.5}, "at must be an integer, got 1.5"),
        ("fork", {"prompt": 1}, "prompt must be a string, got 1"),
        ("fork", {"model": {}}, "model must be a string, got {}"),
        ("fork", {"args": "x"}, 'args must be an object, got "x"'),
    ]:
        assert post(client, f"/api/nodes/{node}/{name}", body) == (400, {"error": said})


def raw(viewer: Viewer, line: str, header: str, end: str = "\r\n\r\n") -> bytes:
    """Return the status that a request gets of which no more comes than its head."""
    where = urlsplit(viewer.address)
    with socket.create_connection(("127.0.0.1", where.port or 0), timeout=20) as connection:
        head = f"Host: {where.netloc}\r\nAuthorization: Bearer {viewer.token}\r\n{header}{end}"
        connection.sendall(f"{line} HTTP/1.1\r\n{head}".encode())
        return connection.recv(12).split()[1]


def test_too_much_is_413_however_it_comes(viewer: Viewer, client: httpx.Client):
    said = {"error": "the request body must have at most 1,000,000 bytes"}
    path = "/api/nodes/1/pause"

    def endless() -> Iterator[bytes]:
        for _ in range(300):
            yield b" " * 10_000

    for body in b" " * 1_000_001, endless():
        refused = client.post(path, content=body)
        assert (refused.status_code, refused.json()) == (413, said)
    assert raw(viewer, f"POST {path}", f"content-length: {'9' * 19}") == b"413"
    most = json.dumps({"reason": "x" * 999_980}).encode()
    status = client.post("/api/nodes/99/pause", content=most).status_code
    assert (len(most) <= 1_000_000, status) == (True, 404)


def test_headers_that_are_too_long_are_refused(viewer: Viewer):
    assert raw(viewer, "GET /api/journal", f"x-long: {'x' * 100_000}", end="") == b"400"


def test_what_is_only_read_or_only_asked_for_is_405_the_other_way(client: httpx.Client):
    for method, path in [
        ("POST", "/api/journal"),
        ("DELETE", "/api/nodes/1"),
        ("PUT", "/api/stream"),
        ("GET", "/api/nodes/1/cancel"),
        ("GET", "/api/questions/1-1"),
    ]:
        refused = client.request(method, path)
        told = {"error": f"there is no route for {method} {path!r}"}
        assert (refused.status_code, refused.json()) == (405, told)


def test_a_store_that_fails_is_500_and_in_words(
    viewer: Viewer, client: httpx.Client, journal: Path
):
    journal.write_bytes(b"no database" * 1000)
    for path in "/api/trees", "/api/nodes/1", "/api/stream?tree=1":
        refused = client.get(path)
        assert refused.status_code == 500, refused.text
        assert str(journal) in refused.json()["error"]


def test_odd_values_do_no_harm():
    async def odd(ctx: RunContext) -> Any:
        return {"nan": float("nan"), "big": 10**5000, "bytes": b"\xff", "set": {1}, 1: "</script>"}

    function = CodeFunction(callable=odd)
    with Runtime([function], store=MemoryStore()) as runtime:
        node = runtime.invoke(function)
        node.result()
        with view(runtime, port=0) as viewer, client_of(viewer) as client:
            told = got(client, f"/api/nodes/{node.id}")
            assert got(client, "/api/search?tree=1&q=SCRIPT") == {"nodes": [1]}
    assert told["outputs"]["nan"] == {"$repr": "nan"}
    assert told["outputs"]["1"] == "</script>"
