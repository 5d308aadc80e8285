"""People are told of questions: by a function or a webhook, once, when the question is durable."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import until
from support import wait
from treefold import CodeFunction, MemoryStore, Notification, RunContext, Runtime, SqliteStore
from treefold.errors import InvalidValueError

PATIENCE = 60  # seconds


async def ask(ctx: RunContext, to: str = "team") -> str:
    return await ctx.ask("Deploy?", ["yes", "no"], to=to)


ASK = CodeFunction(callable=ask, repeatable=True)


@contextmanager
def listening(*statuses: int) -> Generator[tuple[str, list[dict[str, Any]]]]:
    """Serve a webhook that answers with *statuses*, and 200 after them; yield what it was sent."""
    received: list[dict[str, Any]] = []
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(left.pop(0) if left else 200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/hook", received
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_is_told_of_each_question(*, is_async: bool):
    told: list[Notification] = []

    async def tell(notification: Notification) -> None:
        told.append(notification)

    notify = tell if is_async else told.append
    async with asyncio.timeout(PATIENCE), Runtime([ASK], notify=notify) as runtime:
        node = runtime.invoke(ASK)
        [one] = await until(lambda: told)
        assert (one.run, one.path, one.function) == (1, "1", "ask")
        assert (one.question.text, one.question.to) == ("Deploy?", "team")
        assert one.command == "runtime.answer('1-1', TEXT)"
        runtime.answer(one.question.id, "yes")
        assert await node == "yes"
        assert len(told) == 1


def test_a_webhook_is_told_when_the_question_is_durable_and_the_next_process_does_not_repeat_it(
    tmp_path: Path,
):
    path = tmp_path / "run.db"
    with listening() as (url, received):
        with Runtime([ASK], store=path, notify=url) as runtime:
            runtime.invoke(ASK)  # leaving the block does not wait for people, but tells them
        [data] = received
        assert data["question"] | {"text": "Deploy?", "to": "team", "id": "1-1"} == data["question"]
        assert (data["run"], data["path"], data["function"]) == (1, "1", "ask")
        assert data["command"] == f"treefold answer 1 TEXT --store {path}"
        with Runtime([ASK], store=path, notify=url) as runtime:
            runtime.invoke(ASK, {"to": "boss"})
        assert [data["question"]["id"] for data in received] == ["1-1", "2-1"]


def test_what_was_asked_while_nobody_could_be_told_is_told_by_the_next_process(tmp_path: Path):
    path = tmp_path / "run.db"
    with Runtime([ASK], store=path) as runtime:
        runtime.invoke(ASK)
    told: list[Notification] = []
    with Runtime([ASK], store=path, notify=told.append):
        [one] = wait(lambda: told)
        assert one.question.id == "1-1"
    with SqliteStore(path) as store:
        [question] = store.questions()
        assert question.notified


def test_a_webhook_that_fails_is_tried_again_and_disturbs_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with listening(500, 503, 200, 500, 500, 500) as (url, received):
        with Runtime([ASK], store=tmp_path / "run.db", notify=url) as runtime:
            runtime.invoke(ASK)
            wait(lambda: len(received) == 3)
        with Runtime([ASK], store=tmp_path / "run.db", notify=url) as runtime:
            runtime.invoke(ASK, {"to": "nobody"})
            wait(lambda: "nobody could be told that run 2 asks" in caplog.text)
        assert [data["question"]["id"] for data in received] == ["1-1"] * 3 + ["2-1"] * 3


async def test_people_are_told_again_when_a_question_goes_to_somebody_else():
    told: list[Notification] = []

    async def impatient(ctx: RunContext) -> str:
        return await ctx.ask("Deploy?", to="anna", escalate={"team": 0.05})

    function = CodeFunction(callable=impatient)
    async with asyncio.timeout(PATIENCE), Runtime(notify=told.append) as runtime:
        node = runtime.invoke(function)
        await until(lambda: len(told) == 2)
        assert [one.question.to for one in told] == ["anna", "team"]
        runtime.answer(told[0].question.id, "yes")
        assert await node == "yes"


async def test_secrets_are_not_told(tmp_path: Path):
    told: list[Notification] = []

    async def tell_secret(ctx: RunContext) -> str:
        return await ctx.ask("Is it s3cret?")

    function = CodeFunction(callable=tell_secret, repeatable=True)
    options: Any = {"store": tmp_path / "run.db", "redact": lambda t: t.replace("s3cret", "***")}
    async with asyncio.timeout(PATIENCE), Runtime([function], notify=told.append, **options) as one:
        one.invoke(function)
        await until(lambda: told)
    assert told[0].question.text == "Is it ***?"


@pytest.mark.parametrize("wrong", ["ftp://here", "team", 3, "https://"])
def test_what_cannot_be_notified_is_refused_before_a_store_is_opened(wrong: Any, tmp_path: Path):
    path, store = tmp_path / "run.db", MemoryStore()
    for opened in (None, path, store):
        with pytest.raises(InvalidValueError, match="notify= is a function or an https"):
            Runtime(store=opened, notify=wrong)
    with Runtime(store=path), Runtime(store=store):
        pass  # nobody owns them
