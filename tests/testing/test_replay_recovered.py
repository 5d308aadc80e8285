"""Trees of several processes are one recording: what was done twice is replayed once."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from treefold import CodeFunction, RunContext, Runtime, ToolUse, agent
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, replay


def test_a_request_that_was_made_again_after_a_crash_is_one_request(journal: Path):
    asked = threading.Event()

    def hangs(request: Any) -> Any:
        asked.set()
        return HANGS

    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    async def lead(ctx: RunContext) -> str:
        return f"<{await ctx.invoke(greet, {'name': 'Ada'})}>"

    function = CodeFunction(name="lead", callable=lead, uses=[greet])
    runtime = Runtime([function], models=ScriptedModel(hangs), store=journal)
    runtime.invoke(function)
    assert asked.wait(60)
    runtime.close()
    with Runtime([function], models=ScriptedModel("Hi!"), store=journal) as runtime:
        assert runtime.recover()[0].result(timeout=60) == "<Hi!>"

    again = replay([function], journal)
    assert (again.divergence, again.output) == (None, "<Hi!>")


def test_a_call_that_was_made_again_after_a_crash_is_one_call(journal: Path):
    began = threading.Event()
    free = False

    async def look(ctx: RunContext, word: str) -> str:
        began.set()
        if not free:
            await asyncio.Event().wait()
        return word

    look_up = CodeFunction(name="look_up", callable=look, repeatable=True)

    @agent(uses=[look_up])
    def explain(word: str) -> str:
        return f"Explain {word}."

    call = ToolUse("1", "look_up", {"word": "yew"})
    runtime = Runtime([explain], models=ScriptedModel(call), store=journal)
    runtime.invoke(explain, {"word": "yew"})
    assert began.wait(60)
    runtime.close()
    free = True
    with Runtime([explain], models=ScriptedModel("A tree."), store=journal) as runtime:
        assert runtime.recover()[0].result(timeout=60) == "A tree."

    again = replay([explain], journal)
    assert (again.divergence, again.output) == (None, "A tree.")


def test_calls_that_were_not_asked_for_again_after_a_crash_are_not_missed(journal: Path):
    began = threading.Event()

    async def look(ctx: RunContext, word: str) -> str:
        if word == "last":
            began.set()
            await asyncio.Event().wait()
        return word

    look_up = CodeFunction(name="look_up", callable=look, repeatable=True)

    def reader(*words: str) -> CodeFunction:
        async def read(ctx: RunContext) -> list[str]:
            return [await ctx.invoke(look_up, {"word": word}) for word in words]

        return CodeFunction(name="read", callable=read, uses=[look_up])

    runtime = Runtime([before := reader("one", "two", "last")], store=journal)
    runtime.invoke(before)
    assert began.wait(60)
    runtime.close()
    with Runtime([reader("one")], store=journal) as runtime:
        assert runtime.recover()[0].result(timeout=60) == ["one"]

    again = replay([reader("one")], journal)
    assert (again.divergence, again.output) == (None, ["one"])
    found = replay([reader("two")], journal).divergence
    assert found is not None
    assert (found.path, found.what) == ("1.1", "a call that is not made any more")


def test_a_tree_that_was_resumed_after_its_provider_failed_is_replayed(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    model = ScriptedModel(ScriptedFailure(500, "overloaded"), "Hi!")
    with Runtime([greet], models=model, store=journal) as runtime:
        node = runtime.invoke(greet, {"name": "Ada"})
        with pytest.raises(Exception, match="overloaded"):
            node.result(timeout=60)
        assert runtime.resume(node.id).result(timeout=60) == "Hi!"

    again = replay([greet], journal)
    assert (again.divergence, again.output) == (None, "Hi!")
    failed = replay([greet], journal, node.id)
    assert failed.divergence is None
    assert "overloaded" in str(failed.view.exception)


def test_a_request_that_a_person_had_made_again_is_one_request(journal: Path):
    @agent
    def greet(name: str) -> str:
        return f"Greet {name}."

    model = ScriptedModel(ScriptedFailure(500, "overloaded"), "Hi!")
    with Runtime([greet], models=model, store=journal, on_provider_failure="pause") as runtime:
        node = runtime.invoke(greet, {"name": "Ada"})
        for _ in runtime.watch(node, timeout=60):
            if questions := runtime.questions():
                runtime.answer(questions[0].id, "resume")
                break
        assert node.result(timeout=60) == "Hi!"

    again = replay([greet], journal)
    assert (again.divergence, again.output) == (None, "Hi!")
