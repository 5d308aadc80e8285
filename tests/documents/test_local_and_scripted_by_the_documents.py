"""What the documents say of the embedded model, and of the one that plays a script."""

import asyncio
import json
from pathlib import Path

import pytest

from treefold import Provider, TokenUsage, registries, tool
from treefold.core.errors import ModelProviderException, TreefoldError, UsageError
from treefold.core.exchange import Exchange, Finish
from treefold.core.model import ModelSettings
from treefold.core.model_events import (
    AttemptFailed,
    Noticed,
    PartCompleted,
    ResponseEnded,
    TextDelta,
    ThinkingDelta,
)
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.models import LocalModel, Timers, find_model, price
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from wire.protocols import answer, asked, noting

BRIEF = ModelSettings(max_tokens=12, temperature=0.0)

with registries():

    @tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b


@pytest.mark.usefixtures("smollm2")
class TestLocal:
    async def test_it_needs_no_key_and_costs_nothing(self, monkeypatch: pytest.MonkeyPatch):
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        model = find_model("local")
        async with asyncio.timeout(120):
            session = model.open(settings=BRIEF)
            await answer(session, UserText("Say hello."))
        assert model.provider is Provider.Local
        assert price(session.usage, model) == 0
        assert isinstance(session.transcript[-1], ModelText)

    async def test_a_file_can_be_named(self, smollm2: Path):
        async with asyncio.timeout(120):
            session = find_model(f"local:{smollm2}").open(settings=BRIEF)
            await answer(session, UserText("Say hello."))
        assert isinstance(session.transcript[-1], ModelText)

    async def test_what_was_saved_goes_on_with_the_same_answer(self):
        async with asyncio.timeout(120):
            session = LocalModel().open("Be brief.", settings=BRIEF)
            await answer(session, UserText("What is the capital of France?"))
            saved = json.dumps([exchange.to_dict() for exchange in session.exchanges])
            await answer(session, UserText("And of Italy?"))
            loaded = [Exchange.from_dict(data) for data in json.loads(saved)]
            again = LocalModel().open("Be brief.", settings=BRIEF, exchanges=loaded)
            await answer(again, UserText("And of Italy?"))
        assert again.transcript == session.transcript

    async def test_an_answer_has_the_schema_that_was_asked_for(self):
        schema = {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
            "required": ["city", "big"],
            "additionalProperties": False,
        }
        settings = ModelSettings(max_tokens=60, temperature=0.0, response_schema=schema)
        async with asyncio.timeout(120):
            session = LocalModel().open("Answer in JSON.", settings=settings)
            await answer(session, UserText("Name a city."))
        last = session.transcript[-1]
        assert isinstance(last, ModelText)
        found = json.loads(last.text)
        assert set(found) == {"city", "big"}
        assert isinstance(found["big"], bool)

    async def test_with_functions_it_answers_or_calls_and_the_session_goes_on(self):
        async with asyncio.timeout(240):
            settings = ModelSettings(max_tokens=40, temperature=0.0)
            session = LocalModel().open("You may use tools.", [add], settings)
            events = await answer(session, UserText("Add 1 and 2."))
            assert isinstance(events[-1], ResponseEnded)
            results = [ToolResult(call.id, "3") for call in asked(events)]
            await answer(session, *results or [UserText("Thanks.")])
        assert [event for event in events if isinstance(event, Noticed)]  # it is not made for it

    async def test_two_sessions_may_ask_at_once(self):
        async def ask(question: str) -> str:
            session = LocalModel().open("You are a helpful assistant.", settings=BRIEF)
            await answer(session, UserText(question))
            last = session.transcript[-1]
            assert isinstance(last, ModelText)
            return last.text

        questions = ["What is the capital of France?", "How many legs has a dog?"]
        async with asyncio.timeout(240):
            alone = [await ask(question) for question in questions]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(question)) for question in questions]
        assert [task.result() for task in tasks] == alone

    def test_it_serves_one_loop_after_another(self):
        async def ask() -> str:
            async with asyncio.timeout(120):
                session = model.open(settings=BRIEF)
                await answer(session, UserText("What is the capital of France?"))
            return repr(session.transcript[-1])

        model = LocalModel()
        assert asyncio.run(ask()) == asyncio.run(ask())

    async def test_a_question_that_does_not_fit_is_refused_in_words(self):
        async with asyncio.timeout(120):
            session = LocalModel(context=256).open(settings=BRIEF)
            with pytest.raises(TreefoldError, match="too large|context"):
                await answer(session, UserText("word " * 2000))
            assert session.transcript == []


# --- a script


async def test_a_script_streams_its_text_and_keeps_what_the_model_was_shown():
    model = ScriptedModel("One two three.", usage=TokenUsage(input=5, cache_read=2, output=3))
    session = model.open("Be brief.", [add])
    events = await answer(session, UserText("Hi"))
    assert len([event for event in events if isinstance(event, TextDelta)]) > 1
    assert model.requests == [ScriptedRequest("Be brief.", ("add",), (UserText("Hi"),))]
    assert session.usage == TokenUsage(input=5, cache_read=2, output=3)


async def test_a_script_thinks_calls_and_reads_results():
    calls = [ToolUse("a", "add", {"a": 1, "b": 2}), ToolUse("b", "add", {"a": 3, "b": 4})]
    model = ScriptedModel([ThinkingPart("Hm."), ModelText("Adding."), *calls], "3 and 7")
    session = model.open("", [add])
    events = await answer(session, UserText("Add."))
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    assert end.exchange.finish is Finish.TOOL_USE
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["Hm."]
    parts = [event.part for event in events if isinstance(event, PartCompleted)]
    assert parts == [ThinkingPart("Hm."), ModelText("Adding."), *calls]
    await answer(session, ToolResult("a", "3"), ToolResult("b", "no", is_error=True))
    assert model.requests[1].transcript == tuple(session.transcript[:-1])


async def test_a_function_that_stands_last_answers_all_that_follows():
    def echo(request: ScriptedRequest) -> str:
        last = request.transcript[-1]
        assert isinstance(last, UserText)
        return last.text.upper()

    session = ScriptedModel("first", echo).open()
    for text in ("a", "b", "c"):
        await answer(session, UserText(text))
    said = [part.text for part in session.transcript if isinstance(part, ModelText)]
    assert said == ["first", "B", "C"]


async def test_a_scripted_failure_is_retried_or_raised_like_a_real_one():
    waits: list[float] = []
    script = [ScriptedFailure(429, "slow down", retry_after=2), ScriptedFailure(), "ok"]
    session = ScriptedModel(*script, retry=noting(waits)).open()
    events = await answer(session, UserText("Hi"))
    assert waits == [2, 10]
    assert len([event for event in events if isinstance(event, AttemptFailed)]) == 2
    once = ScriptedModel(ScriptedFailure(401, "bad key"), retry=noting(waits)).open()
    with pytest.raises(ModelProviderException, match="bad key") as caught:
        await answer(once, UserText("Hi"))
    assert (caught.value.status, caught.value.attempts) == (401, 1)


async def test_a_reply_that_never_comes_is_given_up_by_the_timer():
    model = ScriptedModel(HANGS, "ok", retry=noting([]), timers=Timers(first_byte=0.05, idle=5))
    session = model.open()
    async with asyncio.timeout(60):
        events = await answer(session, UserText("Hi"))
    assert any(isinstance(event, AttemptFailed) for event in events)
    assert session.transcript[-1] == ModelText("ok")


async def test_a_script_that_is_over_says_so():
    session = ScriptedModel("only").open()
    await answer(session, UserText("Hi"))
    with pytest.raises(UsageError, match="no more replies"):
        await answer(session, UserText("Hi"))


async def test_a_scripted_session_is_saved_and_forked_like_any_other():
    model = ScriptedModel("one", "two", "three")
    session = model.open()
    await answer(session, UserText("1"))
    saved = [Exchange.from_dict(exchange.to_dict()) for exchange in session.exchanges]
    await answer(session, UserText("2"))
    fork = model.open(exchanges=saved)
    await answer(fork, UserText("3"))
    assert [getattr(part, "text", "") for part in fork.transcript] == ["1", "one", "3", "three"]


async def test_the_price_of_a_script_is_unknown():
    assert price(TokenUsage(input=1000), ScriptedModel("x", name="gpt-4o")) is None


async def test_a_scripted_call_without_arguments_or_id_can_be_made():
    session = ScriptedModel([ToolUse("", "add")], "ok").open("", [add])
    [call] = asked(await answer(session, UserText("Add.")))
    assert call.id
    await answer(session, ToolResult(call.id, "3"))
