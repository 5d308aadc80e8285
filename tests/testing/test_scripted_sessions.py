"""Sessions with a scripted model: streaming, retries, timeouts, saving and forking."""

import asyncio

import pytest

from support import add
from treefold import TokenUsage
from treefold.core.errors import ModelProviderException, UsageError
from treefold.core.exchange import Exchange, Finish
from treefold.core.model_events import (
    AttemptFailed,
    PartCompleted,
    ResponseEnded,
    TextDelta,
    ThinkingDelta,
)
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.models import Timers, price
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from wire.protocols import answer, asked, noting


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
