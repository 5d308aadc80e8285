"""Sessions with Claude, over real HTTP through Anthropic's package."""

from typing import Any

import pytest

from support import look
from treefold import CodeFunction
from treefold.core.errors import ModelRefusedError
from treefold.core.exchange import Exchange, Finish
from treefold.core.function import RunContext
from treefold.core.model import Caching, ModelSettings
from treefold.core.model_events import PartCompleted, ResponseEnded
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from treefold.models import PastRun, caching_policy
from wire import anthropic_wire, stream
from wire.anthropic_wire import Raw, Redacted, Text, Thinking, ToolUse as Use, event, message
from wire.protocols import PROTOCOLS, answer

_, ANTHROPIC, _ = PROTOCOLS
HEADER = "interleaved-thinking-2025-05-14"


def marks(body: dict[str, Any]) -> list[tuple[int, int, Any]]:
    """Return where the watermarks are: message, block, and which."""
    return [
        (at, number, block["cache_control"])
        for at, one in enumerate(body["messages"])
        if isinstance(one["content"], list)
        for number, block in enumerate(one["content"])
        if "cache_control" in block
    ]


async def test_every_request_thinks_with_the_header_retries_and_results_included():
    script = [
        message(Thinking(["Hm."]), Use("t1", "look", ['{"at":"x"}']), stop_reason="tool_use"),
        anthropic_wire.error("overloaded_error"),
        message(Thinking(["Aha."]), Text(["Done."])),
    ]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look])
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "nothing"))
    assert len(server.requests) == 3
    for request in server.requests:
        assert request.headers["anthropic-beta"] == HEADER
        assert request.json["thinking"] == {"type": "enabled", "budget_tokens": 64_000}
        assert request.json["max_tokens"] == 32_000
        assert request.json["tool_choice"] == {"type": "auto"}


async def test_after_the_first_prompt_the_user_sends_nothing_but_results():
    use = [Use(f"t{n}", "look", ['{"at":"x"}']) for n in range(3)]
    script = [
        message(Thinking(["Hm."]), *use[:2], stop_reason="tool_use"),
        message(Redacted("c2VjcmV0"), use[2], stop_reason="tool_use"),
        message(Thinking(["Aha."]), Text(["Done."])),
    ]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look])
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t0", "a"), ToolResult("t1", "b", is_error=True))
        await answer(session, ToolResult("t2", "c"))
    told = server.requests[-1].json["messages"]
    assert [one["role"] for one in told] == ["user", "assistant", "user", "assistant", "user"]
    kinds = [[block["type"] for block in one["content"]] for one in told[2::2]]
    assert kinds == [["tool_result", "tool_result"], ["tool_result"]]
    flags = [block.get("is_error", False) for block in told[2]["content"]]
    assert flags == [False, True]
    assert [type(part) for part in session.transcript] == [
        UserText, ThinkingPart, ToolUse, ToolUse, ToolResult, ToolResult,
        ThinkingPart, ToolUse, ToolResult, ThinkingPart, ModelText,
    ]  # fmt: skip


async def test_a_signature_that_comes_in_pieces_goes_back_as_the_transcript_shows_it():
    deltas = [
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "c2ln"},
        {"type": "signature_delta", "signature": "bmVk"},
    ]
    raw = Raw({"type": "thinking", "thinking": "", "signature": ""}, deltas)
    use = Use("t1", "look", ['{"at":"x"}'])
    async with ANTHROPIC.server(
        message(raw, use, stop_reason="tool_use"), message(Text(["ok"]))
    ) as s:
        session = ANTHROPIC.model(s).open("", [look])
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "x"))
    [thought] = [part for part in session.transcript if isinstance(part, ThinkingPart)]
    sent = s.requests[1].json["messages"][1]["content"][0]
    assert sent["signature"] in {"c2lnbmVk", "bmVk"}
    assert thought.signature == sent["signature"]


async def test_a_session_saved_between_thinking_and_results_thinks_on_with_its_signatures():
    use = Use("t1", "look", ['{"at":"x"}'])
    first = message(Thinking(["Hm."], "U0lH"), Redacted("UkVE"), use, stop_reason="tool_use")
    async with ANTHROPIC.server(first, message(Text(["ok"])), message(Text(["ok"]))) as server:
        model = ANTHROPIC.model(server)
        session = model.open("", [look])
        await answer(session, UserText("Look."))
        fork = model.open(
            "", [look], exchanges=[Exchange.from_dict(e.to_dict()) for e in session.exchanges]
        )
        await answer(session, ToolResult("t1", "x"))
        await answer(fork, ToolResult("t1", "y"))
    one, two = (request.json["messages"][1] for request in server.requests[1:])
    assert one == two
    assert [block["type"] for block in one["content"]] == [
        "thinking",
        "redacted_thinking",
        "tool_use",
    ]


async def test_a_call_is_complete_only_when_all_of_its_input_is_there():
    use = Use("t1", "look", ['{"at"', ':"', 'x"', "}"])
    async with ANTHROPIC.server(message(Thinking(["Hm."]), use, stop_reason="tool_use")) as server:
        session = ANTHROPIC.model(server).open("", [look])
        events = await answer(session, UserText("Look."))
    parts = [event.part for event in events if isinstance(event, PartCompleted)]
    assert parts[-1] == ToolUse("t1", "look", {"at": "x"})
    assert sum(isinstance(part, ToolUse) for part in parts) == 1


async def test_a_watermark_is_on_the_last_of_several_results_and_on_nothing_else():
    use = [Use(f"t{n}", "look", ['{"at":"x"}']) for n in range(3)]
    script = [message(Thinking(["Hm."]), *use, stop_reason="tool_use"), message(Text(["ok"]))]
    async with ANTHROPIC.server(*script) as server:
        settings = ModelSettings(caching=Caching.HOUR)
        session = ANTHROPIC.model(server).open("Be brief.", [look], settings)
        await answer(session, UserText("Look."))
        await answer(session, *[ToolResult(f"t{n}", "x") for n in range(3)])
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert marks(server.requests[0].json) == [(0, 0, mark)]
    assert marks(server.requests[1].json) == [(2, 2, mark)]
    for request in server.requests:
        assert request.body.decode().count("cache_control") == 1


async def test_with_caching_what_the_model_said_is_still_sent_back_unaltered():
    blocks = [Thinking(["Hm. é"], "U0lH"), Redacted("UkVE"), Use("t1", "look", ['{"at" : 1.0}'])]
    for caching in Caching:
        script = [message(*blocks, stop_reason="tool_use"), message(Text(["ok"]))]
        async with ANTHROPIC.server(*script) as server:
            session = ANTHROPIC.model(server).open("", [look], ModelSettings(caching=caching))
            await answer(session, UserText("Look."))
            await answer(session, ToolResult("t1", "x"))
        [said] = session.exchanges[0].received
        assert said in server.requests[1].body.decode()


async def test_a_response_that_was_paused_goes_on_without_any_change_to_what_was_said():
    paused = message(Thinking(["Hm."]), Text(["Let me see."]), stop_reason="pause_turn")
    async with ANTHROPIC.server(paused, message(Text(["Seen."]))) as server:
        settings = ModelSettings(caching=Caching.MINUTES)
        session = ANTHROPIC.model(server).open("", [look], settings)
        end = (await answer(session, UserText("Look.")))[-1]
        assert isinstance(end, ResponseEnded)
        assert end.exchange.finish is Finish.PAUSED
        await answer(session)
    [said] = session.exchanges[0].received
    assert said in server.requests[1].body.decode()
    assert len(server.requests[1].json["messages"]) == 2


async def test_cache_performance_is_part_of_the_accounting_of_each_request():
    first = {"input_tokens": 4, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 0,
             "output_tokens": 9}  # fmt: skip
    second = {"input_tokens": 2, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
              "output_tokens": 5}  # fmt: skip
    use = Use("t1", "look", ['{"at":"x"}'])
    script = [
        message(Thinking(["Hm."]), use, stop_reason="tool_use", usage=first),
        message(Text(["ok"]), usage=second),
    ]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look], ModelSettings(caching=Caching.MINUTES))
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "x"))
    usage = session.usage
    assert (usage.input, usage.cache_read, usage.cache_write) == (6, 100, 120)
    assert usage.cache_write_1h == 0
    assert usage.output + usage.reasoning == 14


async def test_tokens_written_for_an_hour_are_told_from_those_for_minutes():
    usage = {"input_tokens": 4, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 0,
             "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 100},
             "output_tokens": 9}  # fmt: skip
    async with ANTHROPIC.server(message(Text(["ok"]), usage=usage)) as server:
        session = ANTHROPIC.model(server).open("", [look], ModelSettings(caching=Caching.HOUR))
        await answer(session, UserText("Hi"))
    assert (session.usage.cache_write, session.usage.cache_write_1h) == (0, 100)


async def test_white_space_that_was_said_before_a_call_does_not_break_the_next_request():
    use = Use("t1", "look", ['{"at":"x"}'])
    script = [
        message(Thinking(["Hm."]), Text(["\n\n"]), use, stop_reason="tool_use"),
        message(Text(["ok"])),
    ]
    async with ANTHROPIC.server(*script) as server:  # it refuses such a text, as the provider does
        session = ANTHROPIC.model(server).open("", [look])
        await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "x"))
    assert session.transcript[-1] == ModelText("ok")


@pytest.mark.parametrize("reason", ["end_turn", "tool_use", "stop_sequence", "max_tokens"])
async def test_a_whole_call_is_kept_whatever_the_stop_reason(reason: str):
    use = Use("t1", "look", ['{"at":"x"}'])
    script = [message(Thinking(["Hm."]), use, stop_reason=reason), message(Text(["ok"]))]
    async with ANTHROPIC.server(*script) as server:
        session = ANTHROPIC.model(server).open("", [look])
        events = await answer(session, UserText("Look."))
        await answer(session, ToolResult("t1", "x"))
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    expected = Finish.MAX_TOKENS if reason == "max_tokens" else Finish.TOOL_USE
    assert end.exchange.finish is expected
    assert session.transcript[2] == ToolUse("t1", "look", {"at": "x"})


async def test_a_refusal_after_thinking_and_text_tells_what_was_said_and_can_be_followed():
    refused = message(Thinking(["Hm."]), Text(["I will ", "not."]), stop_reason="refusal")
    async with ANTHROPIC.server(refused, message(Text(["ok"]))) as server:
        session = ANTHROPIC.model(server).open()
        with pytest.raises(ModelRefusedError, match="refusal") as caught:
            await answer(session, UserText("Something bad."))
        assert caught.value.text == "I will not."
        await answer(session, UserText("Something good."))
    assert [one["role"] for one in server.requests[1].json["messages"]] == ["user"]


async def test_an_overload_in_the_stream_is_retried_and_the_old_thinking_is_gone():
    start = anthropic_wire.message_start()
    opened = event({
        "type": "content_block_start", "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    })  # fmt: skip
    half = {"type": "thinking_delta", "thinking": "Half a thou"}
    delta = event({"type": "content_block_delta", "index": 0, "delta": half})
    broken = stream(start, opened, delta, anthropic_wire.error_event("overloaded_error"))
    async with ANTHROPIC.server(broken, message(Thinking(["Whole."]), Text(["ok"]))) as server:
        session = ANTHROPIC.model(server).open()
        await answer(session, UserText("Hi"))
    thoughts = [part.text for part in session.transcript if isinstance(part, ThinkingPart)]
    assert thoughts == ["Whole."]
    assert "Half" not in repr(session.exchanges)


async def test_a_budget_can_be_set():
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        settings = ModelSettings(thinking=80_000)
        await answer(ANTHROPIC.model(server).open("", [look], settings), UserText("Hi"))
    assert server.requests[0].json["thinking"] == {"type": "enabled", "budget_tokens": 80_000}


async def test_a_sampling_setting_that_the_model_refuses_is_not_sent():
    async with ANTHROPIC.server(message(Text(["ok"]))) as server:
        session = ANTHROPIC.model(server).open("", [look], ModelSettings(temperature=0.2))
        await answer(session, UserText("Hi"))
    assert "temperature" not in server.requests[0].json


def nothing(ctx: RunContext) -> None: ...


def made(name: str, *, agent: bool = False, human: bool = False) -> CodeFunction:
    function = CodeFunction(name=name, desc="", callable=nothing)
    function.is_agent, function.asks_people = agent, human
    return function


def test_an_average_is_taken_over_all_gaps_and_all_runs():
    several = [made("helper", agent=True), made("leaf")]
    close, far = PastRun([0, 60, 120]), PastRun([0, 3 * 3600, 6 * 3600])
    assert caching_policy(several, [close, close, close]) is Caching.HOUR
    assert caching_policy(several, [far]) is Caching.NONE
    assert caching_policy(several, [PastRun([0]), PastRun([0])]) is Caching.NONE
    assert caching_policy([made("ask", human=True)], [close]) is Caching.HOUR
    assert caching_policy([made("ask", human=True)], [PastRun([])] * 5) is Caching.NONE
    assert caching_policy(several, [far, *[close] * 5]) is Caching.HOUR  # the last five
