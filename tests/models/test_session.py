"""What every session does, whatever the protocol: over real HTTP, through the real SDKs."""

import asyncio
import json
import sys
from pathlib import Path
from statistics import median
from types import FrameType

import pytest

from support import add
from treefold import models
from treefold.core.errors import InvalidValueError, SafeExecutionError, UsageError
from treefold.core.exchange import Exchange, Finish
from treefold.core.model import ModelSettings
from treefold.core.model_events import (
    PartCompleted,
    ResponseEnded,
    ResponseStarted,
    TextDelta,
    ToolUseDelta,
)
from treefold.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from wire import Stall, then, with_length
from wire.protocols import Protocol, answer, asked


async def test_text_comes_in_pieces_and_then_as_one_part(protocol: Protocol):
    async with protocol.server(protocol.text("Hel", "lo ", "there")) as server:
        session = protocol.model(server).open("Be brief.")
        events = await answer(session, UserText("Hi"))

    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Hel", "lo ", "there"]
    assert [e.part for e in events if isinstance(e, PartCompleted)] == [ModelText("Hello there")]
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    assert end.exchange.finish is Finish.ANSWERED
    assert end.exchange.usage == session.usage
    assert session.usage.input > 0
    assert session.usage.output > 0
    assert session.transcript == [UserText("Hi"), ModelText("Hello there")]
    assert session.exchanges == [end.exchange]


async def test_the_first_piece_is_there_while_the_server_holds_back_the_rest(protocol: Protocol):
    reply = protocol.text("first", "second")
    head = reply.steps[: len(reply.steps) // 2]
    async with protocol.server(then(type(reply)(reply.status, reply.headers, head), Stall())) as s:
        stream = protocol.model(s).open().send(UserText("Hi"))
        async with asyncio.timeout(60):
            assert await anext(stream) == ResponseStarted()
            assert await anext(stream) == TextDelta("first")
        await stream.aclose()


async def test_the_results_of_parallel_calls_go_back_in_one_message(protocol: Protocol):
    calls = protocol.calls(("id_1", "add", '{"a":1,"b":2}'), ("id_2", "add", '{"a":3,"b":4}'))
    async with protocol.server(calls, protocol.text("3 and 7")) as server:
        session = protocol.model(server).open("", [add])
        events = await answer(session, UserText("Add."))
        first, second = asked(events)
        assert (first.args, second.args) == ({"a": 1, "b": 2}, {"a": 3, "b": 4})
        assert {e.index for e in events if isinstance(e, ToolUseDelta)} == {0, 1}
        results = [ToolResult(second.id, "no", is_error=True), ToolResult(first.id, "3")]
        await answer(session, *results)  # in any order

    said = [part for part in session.transcript if not isinstance(part, ThinkingPart)]
    assert said == [
        UserText("Add."),
        first,
        second,
        ToolResult(first.id, "3"),
        ToolResult(second.id, "no", is_error=True),
        ModelText("3 and 7"),
    ]


async def test_a_saved_session_goes_on_where_it_was_byte_for_byte(protocol: Protocol):
    calls = protocol.calls(("id_1", "add", '{"a":1,"b":2}'))
    async with protocol.server(calls, protocol.text("3"), protocol.text("3")) as server:
        model = protocol.model(server)
        session = model.open("Add.", [add])
        [call] = asked(await answer(session, UserText("1 + 2? é😀\n")))
        saved = json.dumps([exchange.to_dict() for exchange in session.exchanges])
        await answer(session, ToolResult(call.id, "3"))

        exchanges = [Exchange.from_dict(data) for data in json.loads(saved)]
        restored = model.open("Add.", [add], exchanges=exchanges)
        assert restored.transcript == session.transcript[: len(restored.transcript)]
        assert restored.usage == exchanges[0].usage
        await answer(restored, ToolResult(call.id, "3"))

    assert restored.transcript == session.transcript
    assert server.requests[1].body == server.requests[2].body


async def test_a_session_can_be_forked_at_any_exchange(protocol: Protocol):
    script = [protocol.text("one"), protocol.text("two"), protocol.text("other")]
    async with protocol.server(*script) as server:
        model = protocol.model(server)
        session = model.open()
        await answer(session, UserText("1"))
        await answer(session, UserText("2"))
        fork = model.open(exchanges=session.exchanges[:1])
        await answer(fork, UserText("another"))

    assert [part.text for part in fork.transcript] == ["1", "one", "another", "other"]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(session.transcript) == 4


async def test_leaving_a_response_adds_nothing_and_the_session_can_be_used_again(
    protocol: Protocol,
):
    async with protocol.server(protocol.text("a", "b"), protocol.text("c")) as server:
        session = protocol.model(server).open()
        stream = session.send(UserText("Hi"))
        await anext(stream)
        await stream.aclose()
        assert (session.transcript, session.exchanges) == ([], [])
        await answer(session, UserText("Hello"))

    assert session.transcript == [UserText("Hello"), ModelText("c")]


async def test_a_stream_that_was_left_without_closing_it_is_no_obstacle(protocol: Protocol):
    async with protocol.server(protocol.text("a", "b"), protocol.text("c")) as server:
        session = protocol.model(server).open()
        async for _ in session.send(UserText("Hi")):
            break
        await answer(session, UserText("Hello"))
    assert session.transcript == [UserText("Hello"), ModelText("c")]


async def test_a_session_reads_one_response_at_a_time(protocol: Protocol):
    async with protocol.server(protocol.text("a", "b")) as server:
        session = protocol.model(server).open()
        stream = session.send(UserText("Hi"))
        await anext(stream)
        with pytest.raises(SafeExecutionError, match="already waits for a response"):
            await answer(session, UserText("Hello?"))
        assert [type(event) async for event in stream][-1] is ResponseEnded


async def test_every_call_needs_its_result(protocol: Protocol):
    calls = protocol.calls(("id_1", "add", '{"a":1,"b":2}'))
    async with protocol.server(calls, protocol.text("3")) as server:
        session = protocol.model(server).open("", [add])
        [call] = asked(await answer(session, UserText("Add.")))
        with pytest.raises(UsageError, match="no result yet"):
            await answer(session, UserText("What about it?"))
        with pytest.raises(UsageError, match="no such call: nothing"):
            await answer(session, ToolResult("nothing", "4"))
        with pytest.raises(InvalidValueError, match="must be a str, got 3"):
            await answer(session, ToolResult(call.id, 3))  # pyright: ignore[reportArgumentType]
        assert session.pending == [call]
        await answer(session, ToolResult(call.id, "3"), UserText("Quickly!"))

    assert session.transcript[-2:] == [UserText("Quickly!"), ModelText("3")]
    assert session.pending == []


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_an_empty_message_is_never_sent(protocol: Protocol, text: str):
    async with protocol.server() as server:
        session = protocol.model(server).open()
        with pytest.raises(InvalidValueError, match="the text is empty"):
            await answer(session, UserText(text))
        with pytest.raises(UsageError, match="nothing to send"):
            await answer(session)
    assert server.requests == []


async def test_what_was_saved_in_one_protocol_is_not_sent_in_another(protocol: Protocol):
    other = Exchange.from_dict({
        "dialect": "smoke-signals", "sent": [], "received": [], "finish": "answered", "usage": {},
    })  # fmt: skip
    async with protocol.server() as server:
        with pytest.raises(InvalidValueError, match="saved as smoke-signals"):
            protocol.model(server).open(exchanges=[other])


def test_what_is_no_exchange_is_refused_in_words():
    with pytest.raises(
        InvalidValueError, match="not a saved exchange: .* missing required field .dialect."
    ):
        Exchange.from_dict({})
    with pytest.raises(InvalidValueError, match="not a saved exchange"):
        Exchange.from_dict({
            "dialect": "x",
            "sent": [],
            "received": [],
            "finish": "bored",
            "usage": {},
        })


async def test_many_sessions_share_a_connection_pool(protocol: Protocol):
    async with protocol.server(*[with_length(protocol.text("x"))] * 10) as server:
        for _ in range(10):
            await answer(protocol.model(server).open(), UserText("Hi"))
        assert server.connections == 1


async def test_text_that_utf8_cannot_express_does_not_stop_a_request(protocol: Protocol):
    async with protocol.server(protocol.text("ok")) as server:
        await answer(protocol.model(server).open(), UserText("half \ud83d a character"))
        assert "half � a character" in server.requests[0].body.decode()


async def test_extra_fields_cannot_replace_the_conversation(protocol: Protocol):
    async with protocol.server() as server:
        with pytest.raises(InvalidValueError, match="stream cannot be set by 'extra'"):
            protocol.model(server).open(settings=ModelSettings(extra={"stream": False}))


async def test_a_call_is_written_in_the_name_of_the_function(protocol: Protocol):
    call = ToolUse("id_1", "add", {"a": 1, "b": 2})
    async with protocol.server(protocol.calls(("id_1", "add", '{"a":1,"b":2}'))) as server:
        assert asked(await answer(protocol.model(server).open("", [add]), UserText("x"))) == [call]
        tools = json.dumps(server.requests[0].json["tools"])
        assert "Add two integers." in tools
        assert '"required": ["a", "b"]' in tools


async def test_a_request_costs_the_same_work_however_long_the_history_is(protocol: Protocol):
    folder = str(Path(models.__file__).parent)
    calls = 0  # of functions, made in the code under test since the last request

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        if event in {"call", "c_call"} and frame.f_code.co_filename.startswith(folder):
            calls += 1

    cycles: list[int] = []
    script = [protocol.calls((f"id_{n}", "add", '{"a":1,"b":2}')) for n in range(100)]
    async with protocol.server(*script) as server:
        session = protocol.model(server).open("Add.", [add])
        events = await answer(session, UserText("Add."))
        sys.setprofile(count)
        try:
            for _ in script[1:]:
                calls = 0
                events = await answer(session, ToolResult(asked(events)[0].id, "3"))
                cycles.append(calls)
        finally:
            sys.setprofile(None)
    assert median(cycles[-20:]) < 1.2 * median(cycles[10:30])
