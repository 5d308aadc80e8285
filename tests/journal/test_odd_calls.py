"""Calls that are made in odd ways, or with odd things: they are gone on with like any other."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from support import wait
from treefold import (
    AgentOptions,
    Client,
    MemoryStore,
    ModelProviderException,
    RunContext,
    Runtime,
    SqliteStore,
    ToolResult,
    ToolUse,
    agent,
    tool,
)
from treefold.stores import export_tree
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, replay

PATIENCE: Final = 60  # seconds


# --- odd arguments and texts


class Connection:
    """Something that cannot be written down."""


def test_a_call_in_doubt_with_an_argument_that_is_gone_is_asked_about_once() -> None:
    store, begun = MemoryStore(), list[Connection]()

    @tool
    async def send(connection: Connection) -> None:
        begun.append(connection)
        await asyncio.Event().wait()

    @tool(uses=[send])
    async def top(ctx: RunContext) -> None:
        await ctx.invoke(send, {"connection": Connection()})

    runtime = Runtime([top], store=store)
    runtime.invoke(top)
    wait(lambda: begun)
    runtime.close()
    asked = list[list[str]]()
    for _ in range(3):
        with Runtime([top], store=store) as runtime:
            wait(runtime.questions)
        asked.append([question.id for question in store.questions()])
    assert asked == [asked[0]] * 3
    assert (len(asked[0]), len(begun)) == (1, 1)


ODD_TEXTS: Final = {
    "half a character": "\ud800 half",
    "many halves": "\udcff" * 300,
    "half a character at the end": "a" * 255 + "\ud800",
    "nul": "\0 nul",
    "ends of lines": "\u2028\n\r\t\x7f",
    "long": "x" * 1_000_000,
    "like what is written": '{"$":"text","v":"abc"}',
    "no number": '{"a":NaN}',
    "a number without end": "[1e400]",
    "quotes": '"' * 300,
}


def no_secrets(text: str) -> str:
    return text.replace("no such secret", "")


@pytest.mark.parametrize("redact", [None, no_secrets])
@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_an_odd_text_comes_back_wherever_it_stands(
    tmp_path: Path, text: str, redact: Callable[[str], str] | None
) -> None:
    path, runs = tmp_path / "run.db", list[str]()

    @tool(repeatable=True)
    async def echo(text: str, items: dict[str, Any]) -> dict[str, Any]:
        runs.append(text)
        return {"text": text, "$": 1, text[:50]: items, "bytes": b"\xff\0"}

    @tool(uses=[echo])
    async def top(ctx: RunContext, text: str) -> str:
        items = {text[:20]: [text[:300]]}
        given = [
            await ctx.invoke(echo, {"text": text, "items": items}),
            await ctx.invoke(echo, {"text": text, "items": items}, key=text[:100]),
        ]
        assert given == [{"text": text, "$": 1, text[:50]: items, "bytes": b"\xff\0"}] * 2
        return await ctx.ask(text[:1000])

    with Runtime([top], store=path, redact=redact) as runtime:
        runtime.invoke(top, {"text": text}, key=text[:80])
    with Runtime([top], store=path, redact=redact) as runtime:
        node = runtime.invoke(top, {"text": text}, key=text[:80])
        [question] = wait(runtime.questions)
        assert question.text == text[:1000]
        runtime.answer(question.id, text[:500])
        assert node.result(PATIENCE) == text[:500]
    assert len(runs) == 2
    with SqliteStore(path) as store:
        export_tree(store, node.id, tmp_path / "tree.jsonl")
    again = replay([top], tmp_path / "tree.jsonl")
    assert (again.divergence, again.output) == (None, text[:500])


# --- odd wishes


@pytest.mark.parametrize(
    "edit",
    [
        {"args": "abc"},
        {"args": [1]},
        {"args": {"n": {}}},
        {"prompt": 5},
        {"model": 5},
        {"model": [1]},
        {"result": 1, "args": {}},
    ],
)
def test_a_wish_for_a_fork_with_an_odd_edit_stops_nobody(edit: Any) -> None:
    store = MemoryStore()

    @agent
    def greet(n: int) -> str:
        return f"Greet {n} people."

    model = ScriptedModel(lambda request: "Hi!")
    with Runtime([greet], models=model, store=store) as runtime:
        first = runtime.invoke(greet, {"n": 1})
        assert first.result(PATIENCE) == "Hi!"
    store.post(json.dumps({"do": "fork", "node": first.id, "at": None, "edit": edit, "key": "#k"}))
    with Runtime([greet], models=model, store=store) as runtime:
        assert runtime.invoke(greet, {"n": 2}).result(PATIENCE) == "Hi!"
        wait(lambda: not store.inbox())


# --- odd agents


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("done", range(4))
def test_calls_that_a_model_gave_one_id_are_told_apart_after_a_crash(
    done: int, *, parallel: bool
) -> None:
    store, begun, ended = MemoryStore(), list[int](), list[int]()
    may_end = done

    @tool(repeatable=True)
    async def work(n: int) -> str:
        begun.append(n)
        if n >= may_end:
            await asyncio.Event().wait()
        ended.append(n)
        if n == 1:
            raise ValueError("it is the wrong number")
        return f"did {n}"

    @agent(uses=[work], parallel_tools=parallel)
    def talk() -> str:
        return "Go."

    calls = [ToolUse("same", "work", {"n": n}) for n in range(3)]
    first, second = ScriptedModel(calls, HANGS), ScriptedModel("Done.")

    def is_as_far_as_it_comes() -> bool:
        if done == 3:
            return len(first.requests) == 2
        return len(ended) == done and len(begun) == (3 if parallel else done + 1)

    runtime = Runtime([talk], models=first, store=store)
    runtime.invoke(talk)
    wait(is_as_far_as_it_comes)
    runtime.close()
    may_end = 3
    with Runtime([talk], models=second, store=store) as runtime:
        [node] = runtime.recover()
        assert node.result(PATIENCE) == "Done."
    [request] = second.requests
    results = [part.content for part in request.transcript if isinstance(part, ToolResult)]
    assert (len(results), results[0], results[2]) == (3, "did 0", "did 2")
    assert "it is the wrong number" in results[1]


def test_a_failure_of_a_provider_that_code_passes_on_later_is_told_to_the_agent_above() -> None:
    store = MemoryStore()

    @agent
    def inner() -> str:
        return "Look into it."

    @tool(uses=[inner])
    async def later(ctx: RunContext) -> str:
        try:
            return await ctx.invoke(inner)
        except ModelProviderException:
            await ctx.ask("Is it time?")
            raise

    @agent(uses=[later])
    def outer() -> str:
        return "Have it looked into."

    failing = ScriptedModel(ToolUse("1", "later", {}), ScriptedFailure(500, "overloaded"))
    with Runtime([outer], models=failing, store=store) as runtime:
        runtime.invoke(outer)
    model = ScriptedModel("Done.")
    with Runtime([outer], models=model, store=store) as runtime:
        [node] = runtime.recover()
        [question] = wait(runtime.questions)
        runtime.answer(question.id, "yes")
        assert node.result(PATIENCE) == "Done."
    [request] = model.requests
    [result] = [part for part in request.transcript if isinstance(part, ToolResult)]
    assert "overloaded" in result.content


async def test_a_conversation_that_broke_off_is_not_left_open() -> None:
    store = MemoryStore()

    async def talk() -> None:
        async with Runtime(store=store), Client(AgentOptions("Be brief.", model)) as client:
            for text in "Hi.", "And now?":
                await client.query(text)
                async for _ in client.receive_messages():
                    if text == "And now?":
                        raise ZeroDivisionError

    async with asyncio.timeout(PATIENCE):
        model = ScriptedModel("Hello!", "Nothing.")
        with pytest.raises(ZeroDivisionError):
            await talk()
        async with Runtime(store=store):
            pass
    assert [tree.open for tree in store.trees()] == [False] * len(store.trees())
    assert len(model.requests) == 2
