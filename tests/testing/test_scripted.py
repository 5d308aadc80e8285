"""A scripted model is a model: the same session, events and checks, without a network."""

import asyncio
import sys
from statistics import median
from types import FrameType

import pytest

from support import add
from treefold import Runtime, agent, registries
from treefold.core.errors import InvalidValueError, ModelProviderException, UsageError
from treefold.core.model_events import AttemptFailed, TextDelta, ThinkingDelta
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.core.usage import TokenUsage
from treefold.testing import HANGS, ScriptedFailure, ScriptedModel, ScriptedRequest
from wire.protocols import answer, asked, noting

with registries():

    @agent(uses=[add], max_steps=1000)
    def count_up() -> str:
        """Count up."""
        return "Count up."


async def test_it_plays_its_script_and_keeps_what_it_was_shown():
    call = ToolUse("c1", "add", {"a": 1, "b": 2})
    model = ScriptedModel([ThinkingPart("Hm."), ModelText("Let me add."), call], "It is 3.")
    session = model.open("Add.", [add])
    events = await answer(session, UserText("1 + 2?"))
    assert asked(events) == [call]
    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["Hm."]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Let ", "me ", "add."]
    await answer(session, ToolResult("c1", "3"))

    said = [UserText("1 + 2?"), ThinkingPart("Hm."), ModelText("Let me add."), call]
    assert session.transcript == [*said, ToolResult("c1", "3"), ModelText("It is 3.")]
    assert model.requests == [
        ScriptedRequest("Add.", ("add",), (said[0],)),
        ScriptedRequest("Add.", ("add",), (*said, ToolResult("c1", "3"))),
    ]


async def test_a_function_that_stands_last_answers_all_that_follows():
    def echo(request: ScriptedRequest) -> str:
        part = request.transcript[-1]
        assert isinstance(part, UserText)
        return part.text.upper()

    session = ScriptedModel("First.", echo).open()
    for text in ("a", "b", "c"):
        await answer(session, UserText(text))
    said = [part.text for part in session.transcript if isinstance(part, ModelText)]
    assert said == ["First.", "B", "C"]


async def test_failures_are_retried_as_real_ones_are():
    waits: list[float] = []
    script = [ScriptedFailure(529), ScriptedFailure(429, retry_after=2.5), ScriptedFailure(), "ok"]
    model = ScriptedModel(*script, retry=noting(waits))
    events = await answer(model.open(), UserText("Hi"))
    assert waits == [5.0, 2.5, 15.0]
    assert [e.failure.type for e in events if isinstance(e, AttemptFailed)] == [
        "HTTP 529",
        "HTTP 429",
        "connection",
    ]


async def test_without_a_schedule_a_failure_is_final():
    with pytest.raises(ModelProviderException, match="it is down"):
        await answer(ScriptedModel(ScriptedFailure(500, "it is down")).open(), UserText("Hi"))


async def test_a_reply_that_never_comes_can_be_cancelled():
    session = ScriptedModel(HANGS, "back").open()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await answer(session, UserText("Hi"))
    await answer(session, UserText("Hi again"))
    assert session.transcript == [UserText("Hi again"), ModelText("back")]


async def test_usage_is_what_it_was_told():
    usage = TokenUsage(input=10, cache_read=4, reasoning=3, output=2)
    session = ScriptedModel("a", "b", usage=usage).open()
    await answer(session, UserText("Hi"))
    await answer(session, UserText("Hi"))
    assert session.usage == usage + usage


async def test_a_script_that_is_over_and_a_reply_that_is_none_are_refused_in_words():
    with pytest.raises(UsageError, match="has no more replies"):
        await answer(ScriptedModel().open(), UserText("Hi"))
    with pytest.raises(InvalidValueError, match="consists of ModelText.*got UserText"):
        await answer(ScriptedModel([UserText("x")]).open(), UserText("Hi"))


async def test_text_is_said_as_it_was_written():
    for text in ("", " ", "a  b ", "1 1 0", "x" * 5000, "é😀"):
        session = ScriptedModel(text).open()
        await answer(session, UserText("Hi"))
        said = "".join(part.text for part in session.transcript if isinstance(part, ModelText))
        assert said == text


async def test_a_later_request_shows_the_same_as_one_that_is_decoded_from_its_beginning():
    call = ToolUse("c1", "add", {"a": 1, "b": 2})
    script = [ThinkingPart("Hm."), call], ScriptedFailure(503), "é😀 <think>x</think>", HANGS, "ok"
    model = ScriptedModel(*script, retry=noting([]))
    session = model.open("Add.", [add])
    await answer(session, UserText("1 + 2?"))
    await answer(session, ToolResult("c1", "no", is_error=True))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await answer(session, UserText("left out"))
    session.keep("cut off", UserText("Again."))
    await answer(session, UserText("Last."))

    # Sessions opened from the history so far send the same requests as their first.
    kept = session.exchanges
    reopened = ScriptedModel("ok", "ok")
    for number, last in ((1, ToolResult("c1", "no", is_error=True)), (3, UserText("Last."))):
        await answer(reopened.open("Add.", [add], exchanges=kept[:number]), last)
    assert model.requests[1] == model.requests[2] == reopened.requests[0]
    assert model.requests[-1] == reopened.requests[1]


async def test_a_cycle_costs_the_same_however_long_the_conversation_is():
    calls = 0  # of Python's and C's functions, since the last request
    cycles: list[int] = []

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    def script(request: ScriptedRequest) -> ToolUse | str:
        nonlocal calls
        cycles.append(calls)
        calls = 0
        number = len(cycles)
        return ToolUse(f"c{number}", "add", {"a": number, "b": 1}) if number <= 400 else "Done."

    async with Runtime([count_up], models=ScriptedModel(script)) as runtime:
        sys.setprofile(count)
        try:
            await runtime.invoke(count_up)
        finally:
            sys.setprofile(None)
    assert median(cycles[-20:]) < 1.2 * median(cycles[10:30])
