"""Messages that are damaged in the database: reported, left where they are, and in nobody's way."""

import logging
from typing import Any

import psycopg
import pytest

from cluster.conftest import Workers
from cluster.test_shared_runtime import eventually
from treefold import CodeFunction, RunContext, attach


async def ask(ctx: RunContext) -> str:
    return await ctx.ask("Which colour?", ["red", "blue"])


ASK = CodeFunction(callable=ask, repeatable=True)


def rows(url: str) -> "psycopg.Connection[Any]":
    found = psycopg.connect(url.partition("?")[0], autocommit=True)
    found.execute(f"SET search_path = {url.rpartition('=')[2]}".encode())
    return found


def kept(database: "psycopg.Connection[Any]") -> int:
    """Return how many messages there are."""
    [(count,)] = database.execute("SELECT count(*) FROM inbox").fetchall()
    return count


def test_a_damaged_message_is_reported_once_and_leaves_its_drive_alone(
    workers: Workers, caplog: pytest.LogCaptureFixture
):
    first = workers(ASK)
    node = first.invoke(ASK)
    eventually(first.questions, "the question")
    workers.close(first)
    with attach(workers.url) as observer, rows(workers.url) as database:
        observer.pause(node.id, "enough")
        database.execute("UPDATE inbox SET body = body || 'x'")
        workers(ASK)
        said = "has a wrong checksum; it is damaged, and left out"
        eventually(lambda: said in caplog.text, "the report")

        def wanted() -> Any:
            search = "SELECT node FROM drives WHERE wanted IS NOT NULL OR owner IS NOT NULL"
            return database.execute(search).fetchall()

        eventually(lambda: not wanted(), "the release")
        # Other messages arrive all the same, and the damaged one is still there.
        (question,) = observer.questions()
        observer.answer(question.id, "red")
        eventually(lambda: not observer.trees()[0].open, "the end")
        assert observer.get_view(node.id).outputs == "red"
        eventually(lambda: not wanted(), "the release")
        eventually(lambda: kept(database) == 1, "the end of the other message")
    warned = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.getMessage() for one in warned if said in one.getMessage()] == [
        one.getMessage() for one in warned
    ]
    assert len(warned) == 1


def test_a_damaged_answer_is_none_and_another_one_may_be_given(workers: Workers):
    first = workers(ASK)
    node = first.invoke(ASK)
    eventually(first.questions, "the question")
    workers.close(first)
    with attach(workers.url) as observer, rows(workers.url) as database:
        (question,) = observer.questions()
        observer.answer(question.id, "red")
        assert observer.questions() == []
        database.execute("UPDATE inbox SET body = replace(body, 'red', 'reb')")
        assert [one.id for one in observer.questions()] == [question.id]
        observer.answer(question.id, "blue")
        runtime = workers(ASK)
        eventually(lambda: runtime.get_view(node.id).outputs == "blue", "the end")
        eventually(lambda: kept(database) == 1, "the end of the other message")
