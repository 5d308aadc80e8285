"""Values that are larger than SQLite accepts: they fail the call that has them, and no other one.

SQLite's limit of a billion bytes is lowered, so that a small value is too large.
"""

import os
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from support import wait
from treefold import (
    CodeFunction,
    Edit,
    Function,
    RunContext,
    Runtime,
    TooLargeError,
    ToolUse,
    agent,
    attach,
)
from treefold.testing import ScriptedModel

PATIENCE: Final = 60  # seconds
LIMIT: Final = 50_000  # bytes
BIG: Final = os.urandom(LIMIT).hex()


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def connect_with_limit(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LIMIT)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_with_limit)


async def returns(ctx: RunContext) -> str:
    return BIG


async def returns_many_short_texts(ctx: RunContext) -> list[str]:
    return [BIG[at : at + 100] for at in range(0, len(BIG), 100)]


async def raises(ctx: RunContext) -> None:
    raise ZeroDivisionError(BIG)


async def streams(ctx: RunContext) -> AsyncGenerator[str, None]:
    yield "small"
    yield BIG


async def asks(ctx: RunContext) -> str:
    return await ctx.ask(BIG)


async def takes(ctx: RunContext, text: str) -> int:
    return len(text)


taking = CodeFunction(callable=takes)


async def passes_on(ctx: RunContext) -> int:
    return await ctx.invoke(taking, {"text": BIG})


async def small(ctx: RunContext) -> str:
    return "small"


tiny = CodeFunction(callable=small)

TOO_LARGE: Final = [
    CodeFunction(callable=returns),
    CodeFunction(callable=returns_many_short_texts),
    CodeFunction(callable=raises),
    CodeFunction(callable=streams),
    CodeFunction(callable=asks),
    CodeFunction(callable=passes_on, uses=[taking]),
]


@pytest.mark.parametrize("function", TOO_LARGE, ids=lambda function: function.name)
def test_a_call_with_too_large_a_value_fails_alone(function: Function, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Runtime([function, tiny], store=path) as runtime:
        node = runtime.invoke(function)
        with pytest.raises(TooLargeError, match=r"takes 1\d\d,\d\d\d bytes, and .*run.db accepts"):
            node.result(PATIENCE)
        assert runtime.invoke(tiny).result(PATIENCE) == "small"
        assert runtime.questions() == []
    with Runtime([function, tiny], store=path) as runtime:
        assert runtime.recover() == []
        assert [root.state.value for root in runtime.list_toplevel()] == ["error", "success"]
        with pytest.raises(TooLargeError, match="accepts at most"):
            runtime.list_toplevel()[0].result(PATIENCE)


def test_a_top_level_call_with_too_large_an_argument_is_not_made(tmp_path: Path) -> None:
    with Runtime([taking, tiny], store=tmp_path / "run.db") as runtime:
        for key in None, "once":
            with pytest.raises(TooLargeError, match="CallRequested of node"):
                runtime.invoke(taking, {"text": BIG}, key=key)
        assert runtime.invoke(taking, {"text": "four"}, key="once").result(PATIENCE) == 4


def test_too_large_an_answer_leaves_the_question_open(tmp_path: Path) -> None:
    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Well?")

    asking = CodeFunction(callable=ask)
    with Runtime([asking], store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(asking)
        [question] = wait(runtime.questions)
        with pytest.raises(TooLargeError):
            runtime.answer(question.id, BIG)
        assert runtime.questions() == [question]
        runtime.answer(question.id, "fine")
        assert node.result(PATIENCE) == "fine"


def test_an_agent_is_told_that_a_result_was_too_large(tmp_path: Path) -> None:
    @agent(uses=[TOO_LARGE[0]])
    def look() -> str:
        return "Look."

    told: list[str] = []

    def reply(request: Any) -> Any:
        told.append(str(request.transcript[-1]))
        return "done" if len(told) > 1 else ToolUse("1", "returns", {})

    with Runtime([look], models=ScriptedModel(reply, reply), store=tmp_path / "run.db") as runtime:
        assert runtime.invoke(look).result(PATIENCE) == "done"
    assert "accepts at most" in told[1]


def test_an_agent_whose_response_is_too_large_fails_alone(tmp_path: Path) -> None:
    @agent
    def talk() -> str:
        return "Talk."

    with Runtime([talk, tiny], models=ScriptedModel(BIG), store=tmp_path / "run.db") as runtime:
        with pytest.raises(TooLargeError):
            runtime.invoke(talk).result(PATIENCE)
        assert runtime.invoke(tiny).result(PATIENCE) == "small"


def test_a_fork_with_too_large_an_edit_is_not_made(tmp_path: Path) -> None:
    with Runtime([taking], store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(taking, {"text": "four"})
        assert node.result(PATIENCE) == 4
        with pytest.raises(TooLargeError):
            runtime.fork(node, edit=Edit(args={"text": BIG}))
        assert runtime.fork(node, edit=Edit(args={"text": "three"})).result(PATIENCE) == 5
    with attach(tmp_path / "run.db") as observer:
        assert [tree.state.value for tree in observer.trees()] == ["success", "success"]
