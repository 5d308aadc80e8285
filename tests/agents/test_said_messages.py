"""A person says something to an agent while it runs."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from support import wait
from treefold import (
    AgentFunction,
    Budget,
    CodeFunction,
    Compaction,
    MemoryStore,
    Node,
    Receipt,
    RunContext,
    Runtime,
    SaidMessage,
    ToolResult,
    ToolUse,
    UserText,
    agent,
    attach,
)
from treefold.errors import InvalidValueError, UsageError
from treefold.testing import ScriptedModel, replay
from treefold.toolbox import human_in_loop

CALL = ToolUse("call_1", "look")


class Stage:
    """An agent that calls a function which waits until it may go on."""

    def __init__(self, *replies: Any, **options: Any) -> None:
        self.goes_on, self.waits = threading.Event(), threading.Event()
        self.model = ScriptedModel(*replies)

        def look(ctx: RunContext) -> str:
            self.waits.set()
            assert self.goes_on.wait(30)
            return "a cup"

        uses: Any = [CodeFunction(callable=look, repeatable=True)]

        @agent(uses=uses, **options)
        def search() -> str:
            """Search."""
            return "Look."

        self.search: AgentFunction[Any, str] = search

    def running(self, runtime: Runtime) -> Node[str]:
        node = runtime.invoke(self.search)
        assert self.waits.wait(30)
        return node


def said_to(runtime: Any, node: Node) -> Sequence[SaidMessage]:
    return runtime.get_view(node.id).messages


def texts(model: ScriptedModel) -> list[str]:
    """Return the texts of the user in the last request."""
    return [one.text for one in model.requests[-1].transcript if isinstance(one, UserText)]


def test_a_message_is_delivered_with_the_next_request_after_the_results():
    stage = Stage(CALL, "found")
    with Runtime([stage.search], models=stage.model) as runtime:
        node = stage.running(runtime)
        said = runtime.say(node.id, "Not on the roof.")
        assert [one.receipt for one in said_to(runtime, node)] == [Receipt.Posted]
        stage.goes_on.set()
        assert node.result(30) == "found"
        (known,) = said_to(runtime, node)
        assert (known.id, known.step, known.receipt) == (said.id, 2, Receipt.Delivered)
    assert [type(part) for part in stage.model.requests[-1].transcript][-2:] == [
        ToolResult,
        UserText,
    ]
    assert texts(stage.model) == ["Look.", "Not on the roof."]


def test_a_message_for_an_idle_agent_is_delivered_instead_of_the_end():
    stage = Stage(CALL, "found", "nothing more")
    with Runtime([stage.search], models=stage.model) as runtime:
        node = stage.running(runtime)
        runtime.say(node.id, "And the roof?", when="idle")
        stage.goes_on.set()
        assert node.result(30) == "nothing more"
        assert [one.step for one in said_to(runtime, node)] == [3]
    assert texts(stage.model) == ["Look.", "And the roof?"]


def test_an_agent_does_not_end_before_it_has_read_what_was_said(tmp_path: Path):
    def late(request: Any) -> str:
        runtime.say(node.id, "The roof, too!")
        return "found"

    stage = Stage(CALL, late, "the roof, too")
    store = tmp_path / "run.db"
    with Runtime([stage.search], models=stage.model, store=store) as runtime:
        node = stage.running(runtime)
        stage.goes_on.set()
        assert node.result(30) == "the roof, too"
        assert [one.step for one in said_to(runtime, node)] == [3]
    assert replay([stage.search], store).divergence is None


def test_a_message_to_an_agent_that_has_ended_is_too_late():
    stage = Stage("found")
    with Runtime([stage.search], models=stage.model) as runtime:
        node = runtime.invoke(stage.search)
        assert node.result(30) == "found"
        with pytest.raises(UsageError, match="too late"):
            runtime.say(node.id, "Wait!")


def test_a_message_that_an_agent_did_not_live_to_read_is_too_late():
    stage = Stage(CALL)
    with Runtime([stage.search], models=stage.model) as runtime:
        node = stage.running(runtime)
        runtime.say(node.id, "Not on the roof.")
        node.cancel("enough")
        stage.goes_on.set()
        wait(lambda: node.state.final or None)
        assert [one.receipt for one in said_to(runtime, node)] == [Receipt.TooLate]


def test_only_agents_are_told_something():
    stage = Stage(CALL, "found")
    with Runtime([stage.search], models=stage.model) as runtime:
        node = stage.running(runtime)
        with pytest.raises(UsageError, match="takes no messages"):
            runtime.say(node.children[0].id, "Hurry.")
        with pytest.raises(InvalidValueError, match="nothing to say"):
            runtime.say(node.id, " ")
        with pytest.raises(InvalidValueError, match="'next', 'idle'"):
            runtime.say(node.id, "Hurry.", when=cast("Any", "now"))
        stage.goes_on.set()
        assert node.result(30) == "found"


def test_another_process_says_something_to_any_agent(tmp_path: Path):
    stage, store = Stage(CALL, "found"), tmp_path / "run.db"

    async def lead(ctx: RunContext) -> str:
        return await ctx.invoke(stage.search)

    top: Any = CodeFunction(callable=lead, uses=[stage.search])
    with Runtime([top], models=stage.model, store=store) as runtime, attach(store) as observer:
        node = runtime.invoke(top)
        assert stage.waits.wait(30)
        (below,) = node.children
        with pytest.raises(UsageError, match="not the call of an agent"):
            observer.say(node.id, "Hurry.")
        said = observer.say(below.id, "Not on the roof.")
        wait(lambda: said_to(observer, below) or None)
        stage.goes_on.set()
        assert node.result(30) == "found"
        wait(lambda: said_to(observer, below)[0].step)
        assert [one.id for one in said_to(observer, below)] == [said.id]
    assert texts(stage.model) == ["Look.", "Not on the roof."]


def test_what_was_said_survives_the_process_and_is_delivered_once(tmp_path: Path):
    stage, store = Stage(CALL, "never"), tmp_path / "run.db"
    runtime = Runtime([stage.search], models=stage.model, store=store)
    node = runtime.invoke(stage.search, key="k")
    assert stage.waits.wait(30)
    runtime.say(node.id, "Not on the roof.")
    runtime.flush()
    threading.Timer(0.2, stage.goes_on.set).start()
    runtime.close()
    again = Stage("found")
    again.goes_on.set()
    with Runtime([again.search], models=again.model, store=store) as runtime:
        node = runtime.invoke(again.search, key="k")
        assert node.result(30) == "found"
        assert [one.receipt for one in said_to(runtime, node)] == [Receipt.Delivered]
    assert texts(again.model) == ["Look.", "Not on the roof."]


def test_what_was_said_is_not_summed_up():
    def reply(request: Any) -> Any:
        if "sum up" in request.system:
            return "the summary"
        return calls.pop(0) if calls else "done"

    def look(ctx: RunContext, place: int) -> str:
        if place == 1:
            runtime.say(node.id, "Not on the roof.")
        return "a cup " * 50

    calls = [ToolUse(f"call_{n}", "look", {"place": n}) for n in range(30)]
    model = ScriptedModel(reply, context_window=2_000)

    @agent(uses=[CodeFunction(callable=look)], compaction=Compaction(), max_steps=100)
    def search() -> str:
        """Search."""
        return "Look."

    with Runtime([search], models=model, store=MemoryStore()) as runtime:
        node = runtime.invoke(search)
        assert node.result(30) == "done"
    assert "User, later: Not on the roof." in texts(model)[0]


def test_nothing_is_read_after_the_last_request_that_a_budget_allows():
    asked: list[int] = []

    def reply(request: Any) -> Any:
        asked.append(len(asked))
        if len(asked) == 1:
            return ToolUse("call_1", "look")
        runtime.say(node.id, "And the roof?")
        return "found"

    def look(ctx: RunContext) -> str:
        return "a cup"

    @agent(uses=[CodeFunction(callable=look)], budget=Budget(calls=1, last_call=True))
    def search() -> str:
        """Search."""
        return "Look."

    with Runtime([search], models=ScriptedModel(reply)) as runtime:
        node = runtime.invoke(search)
        assert node.result(30) == "found"
        assert [one.receipt for one in said_to(runtime, node)] == [Receipt.TooLate]
    assert len(asked) == 2


def test_an_agent_that_an_earlier_process_left_waiting_is_told_something(tmp_path: Path):
    store, asks = tmp_path / "run.db", ToolUse("1", "human_in_loop", {"question": "May I?"})

    @agent(uses=[human_in_loop])
    def ask() -> str:
        """Ask."""
        return "Ask."

    with Runtime([ask], models=ScriptedModel(asks), store=store) as runtime:
        node = runtime.invoke(ask, key="k")
        wait(runtime.questions)
    model = ScriptedModel("found")
    with Runtime([ask], models=model, store=store) as runtime, attach(store) as observer:
        (question,) = runtime.questions()
        runtime.say(node.id, "Not on the roof.")
        observer.say(node.id, "Nor in the cellar.")
        wait(lambda: len(said_to(observer, node)) == 2)
    with Runtime([ask], models=model, store=store) as runtime:
        runtime.answer(question.id, "yes")
        assert runtime.invoke(ask, key="k").result(30) == "found"
        assert {one.receipt for one in said_to(runtime, node)} == {Receipt.Delivered}
    assert texts(model) == ["Ask.", "Not on the roof.\n\nNor in the cellar."]
