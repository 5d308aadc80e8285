"""What fails for a while is tried again; what fails for good says what to do."""

import asyncio
import dataclasses
import email.utils
import time
from typing import Any

import pytest

from treefold.core.errors import ModelProviderException
from treefold.core.model_events import AttemptFailed, Noticed, ResponseEnded, TextDelta
from treefold.core.transcript import ModelText, UserText
from treefold.models.openai.model import OpenAIModel
from treefold.models.retry import Retry, Timers
from wire import (
    Cut,
    Reply,
    Stall,
    anthropic_wire,
    closed_after,
    cut_after,
    failure,
    gemini_wire,
    openai_wire,
    slow_first_byte,
    stream,
    then,
)
from wire.protocols import KEY, PROTOCOLS, Protocol, answer, noting

OPENAI, ANTHROPIC, GEMINI = PROTOCOLS


def half(reply: Reply) -> int:
    return len(reply.body) // 2


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_transient_status_is_retried(protocol: Protocol, status: int):
    waits: list[float] = []
    async with protocol.server(protocol.failure(status), protocol.text("ok")) as server:
        session = protocol.model(server, retry=noting(waits)).open()
        events = await answer(session, UserText("Hi"))

    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert (failed.attempt, failed.wait, failed.failure.type) == (1, 5.0, f"HTTP {status}")
    assert waits == [5.0]
    assert session.transcript == [UserText("Hi"), ModelText("ok")]
    assert server.requests[0].body == server.requests[1].body


async def test_after_5_10_15_and_20_seconds_it_fails(protocol: Protocol):
    waits: list[float] = []
    async with protocol.server(*[protocol.failure(500, "Oh no.")] * 5) as server:
        session = protocol.model(server, retry=noting(waits)).open()
        with pytest.raises(ModelProviderException, match="after 5 attempts: Oh no.") as caught:
            await answer(session, UserText("Hi"))
        assert waits == [5, 10, 15, 20]
        assert (caught.value.status, caught.value.attempts) == (500, 5)
        assert len(server.requests) == 5
        assert session.transcript == []

        server.add(protocol.text("back again"))
        await answer(session, UserText("Hi"))  # what failed may be sent again
    assert session.transcript == [UserText("Hi"), ModelText("back again")]


@pytest.mark.parametrize(
    ("header", "value", "wait"),
    [("retry_after", "7", 7.0), ("retry_after", "0.5", 0.5), ("retry_after_ms", "1500", 1.5)],
)
async def test_retry_after_is_honoured(protocol: Protocol, header: str, value: str, wait: float):
    waits: list[float] = []
    script = [protocol.failure(429, **{header: value}), protocol.text("ok")]
    async with protocol.server(*script) as server:
        await answer(protocol.model(server, retry=noting(waits)).open(), UserText("Hi"))
    assert waits == [wait]


async def test_retry_after_may_be_a_date(protocol: Protocol):
    waits: list[float] = []
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    script = [protocol.failure(503, retry_after=date), protocol.text("ok")]
    async with protocol.server(*script) as server:
        await answer(protocol.model(server, retry=noting(waits)).open(), UserText("Hi"))
    assert 20 < waits[0] <= 31


async def test_a_wait_that_is_too_long_is_not_waited_for(protocol: Protocol):
    async with protocol.server(protocol.failure(429, retry_after="86400")) as server:
        with pytest.raises(ModelProviderException):
            await answer(protocol.model(server).open(), UserText("Hi"))


async def test_googles_own_word_for_retry_after_is_honoured():
    waits: list[float] = []
    limit = gemini_wire.error(429, details=[gemini_wire.retry_info("17s")])
    async with GEMINI.server(limit, GEMINI.text("ok")) as server:
        await answer(GEMINI.model(server, retry=noting(waits)).open(), UserText("Hi"))
    assert waits == [17.0]


async def test_what_was_said_before_a_broken_stream_is_void(protocol: Protocol):
    reply = protocol.text("one ", "two ", "three ", "four")
    async with protocol.server(cut_after(reply, half(reply)), reply) as server:
        session = protocol.model(server).open()
        events = await answer(session, UserText("Hi"))

    kinds = [type(event) for event in events]
    at = kinds.index(AttemptFailed)
    assert TextDelta in kinds[:at]
    said = [event.text for event in events[at:] if isinstance(event, TextDelta)]
    assert said == ["one ", "two ", "three ", "four"]
    assert session.transcript == [UserText("Hi"), ModelText("one two three four")]


@pytest.mark.parametrize("portion", [0.1, 0.3, 0.5, 0.7, 0.9])
async def test_a_stream_that_ends_early_is_retried_wherever_it_ends(
    protocol: Protocol, portion: float
):
    reply = protocol.calls(("id_1", "add", '{"a":1,"b":2}'))
    early = closed_after(reply, int(len(reply.body) * portion))
    async with protocol.server(early, protocol.text("ok")) as server:
        session = protocol.model(server).open()
        events = await answer(session, UserText("Hi"))
    if server.left == 0:  # otherwise what was cut off was not needed
        assert AttemptFailed in map(type, events)
        assert session.transcript == [UserText("Hi"), ModelText("ok")]
    else:
        assert protocol is OPENAI
        assert portion >= 0.7


async def test_a_connection_that_is_cut_before_the_answer_is_retried(protocol: Protocol):
    async with protocol.server(Reply(before=(Cut(),)), protocol.text("ok")) as server:
        events = await answer(protocol.model(server).open(), UserText("Hi"))
        assert len(server.requests) == 2
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert failed.failure.type == "connection"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
async def test_nothing_is_waited_for_when_no_server_listens_on_this_machine(address: str):
    waits: list[float] = []
    model = OpenAIModel("x", base_url=f"http://{address}:9/v1", retry=noting(waits))
    with pytest.raises(ModelProviderException) as caught:
        await answer(model.open(), UserText("Hi"))
    assert (waits, caught.value.attempts) == ([], 1)
    said = f"nothing listens at http://{address}:9/v1: start the server, or set another address"
    assert said in str(caught.value)


def test_a_server_elsewhere_that_refuses_connections_is_tried_again():
    retry = Retry()
    for address in ("http://models.example:80/v1", "http://192.0.2.1/v1", "https://[2001:db8::1]"):
        assert retry.tries_refused(address)
        assert not dataclasses.replace(retry, if_refused=False).tries_refused(address)


async def test_a_server_that_is_not_there_is_retried_if_that_is_wanted():
    waits: list[float] = []
    retry = dataclasses.replace(noting(waits), if_refused=True)
    model = OpenAIModel("x", base_url="http://127.0.0.1:9/v1", retry=retry)
    with pytest.raises(ModelProviderException) as caught:
        await answer(model.open(), UserText("Hi"))
    assert waits == [5, 10, 15, 20]
    assert caught.value.inner is not None
    assert caught.value.provider == "OpenAIModel"


async def test_an_error_in_the_middle_of_a_stream_is_retried(protocol: Protocol):
    reply = protocol.text("one ", "two ", "three")
    broken = stream(*reply.steps[:2], protocol.failure_event("Overloaded."))
    async with protocol.server(broken, reply) as server:
        events = await answer(protocol.model(server).open(), UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert failed.failure.message == "Overloaded."


async def test_an_error_in_a_stream_is_not_followed_by_a_wait_for_more(protocol: Protocol):
    broken = stream(protocol.failure_event("Overloaded."), Stall())
    async with protocol.server(broken, protocol.text("ok")) as server:
        session = protocol.model(server).open()
        async with asyncio.timeout(60):
            events = await answer(session, UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert failed.failure.type != "connection"


async def test_a_stalled_stream_is_given_up_after_the_idle_time(protocol: Protocol):
    reply = protocol.text("one ", "two ", "three")
    stalled = then(stream(*reply.steps[: len(reply.steps) // 2]), Stall())
    async with protocol.server(stalled, reply) as server:
        session = protocol.model(server, timers=Timers(first_byte=5, idle=0.05)).open()
        events = await answer(session, UserText("Hi"))
        async with asyncio.timeout(60):
            await server.disconnected.wait()
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert "was idle for 0.05 s" in failed.failure.message


async def test_a_slow_first_byte_is_given_up(protocol: Protocol):
    async with protocol.server(
        slow_first_byte(protocol.text("late"), 60), protocol.text("ok")
    ) as server:
        session = protocol.model(server, timers=Timers(first_byte=0.5, idle=5)).open()
        events = await answer(session, UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert "no response within 0.5 s" in failed.failure.message
    assert session.transcript[-1] == ModelText("ok")


async def test_headers_without_a_body_are_no_first_byte(protocol: Protocol):
    async with protocol.server(stream(Stall()), protocol.text("ok")) as server:
        session = protocol.model(server, timers=Timers(first_byte=0.5, idle=60)).open()
        events = await answer(session, UserText("Hi"))
    assert any(isinstance(event, AttemptFailed) for event in events)


@pytest.mark.parametrize("strict", [ANTHROPIC, GEMINI], ids=str)
async def test_what_is_not_the_protocol_is_retried(strict: Protocol):
    async with strict.server(stream(b"data: {]\n\n"), strict.text("ok")) as server:
        events = await answer(strict.model(server).open(), UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    assert "not an event" in failed.failure.message


async def test_an_openai_stream_goes_on_after_junk():
    reply = OPENAI.text("one ", "two")
    junk = stream(b"data: {]\n\n", b"nonsense\n", b": comment\n\n", *reply.steps)
    async with OPENAI.server(junk) as server:
        session = OPENAI.model(server).open()
        events = await answer(session, UserText("Hi"))
    assert session.transcript[-1] == ModelText("one two")
    [noticed] = [event for event in events if isinstance(event, Noticed)]
    assert "1 events were not JSON" in noticed.text


async def test_a_web_page_instead_of_an_answer_is_a_broken_stream(protocol: Protocol):
    page = stream(b"<html><body>Welcome!</body></html>", content_type="text/html")
    async with protocol.server(page, protocol.text("ok")) as server:
        events = await answer(protocol.model(server).open(), UserText("Hi"))
    assert AttemptFailed in map(type, events)


async def test_cancelling_a_wait_ends_it_at_once(protocol: Protocol):
    async with protocol.server(protocol.failure(500)) as server:
        session = protocol.model(server, retry=Retry([3600])).open()

        async def ask() -> None:
            await answer(session, UserText("Hi"))

        async with asyncio.timeout(60):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(ask())
                await server.arrived.wait()
                task.cancel()
        assert task.cancelled()


FOR_GOOD: list[tuple[Protocol, Any, str]] = [
    (OPENAI, openai_wire.error("invalid_key"), "check the key: give another api_key="),
    (OPENAI, openai_wire.error("forbidden"), "check the key"),
    (OPENAI, openai_wire.error("invalid_request"), "rejects this request"),
    (OPENAI, openai_wire.error("no_model"), "check the model's name and the address"),
    (OPENAI, openai_wire.error("insufficient_quota"), "quota is exhausted"),
    (OPENAI, openai_wire.error("context_length"), "the request is too large"),
    (OPENAI, failure(422, "plain text"), "plain text"),
    (ANTHROPIC, anthropic_wire.error("authentication_error"), "check the key: give another"),
    (ANTHROPIC, anthropic_wire.error("billing_error"), "quota is exhausted"),
    (
        ANTHROPIC,
        anthropic_wire.error("invalid_request_error", anthropic_wire.CREDIT),
        "quota is exhausted",
    ),
    (
        ANTHROPIC,
        anthropic_wire.error("rate_limit_error", error_code="enforced_spend_limit_reached"),
        "quota is exhausted",
    ),
    (ANTHROPIC, anthropic_wire.error("request_too_large"), "the request is too large"),
    (GEMINI, gemini_wire.error(403, "PERMISSION_DENIED"), "check the key: give another"),
    (
        GEMINI,
        gemini_wire.error(
            400, message="API key not valid.", details=[gemini_wire.error_info("API_KEY_INVALID")]
        ),
        "check the key: give another",
    ),
    (GEMINI, gemini_wire.error(404, "NOT_FOUND"), "check the model's name"),
    (
        GEMINI,
        gemini_wire.error(429, details=[gemini_wire.quota_failure("RequestsPerDayPerProject")]),
        "quota is exhausted",
    ),
]


@pytest.mark.parametrize(("protocol", "reply", "advice"), FOR_GOOD)
async def test_what_does_not_get_better_is_not_retried_and_says_what_to_do(
    protocol: Protocol, reply: Reply, advice: str
):
    async with protocol.server(reply) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server).open(), UserText("Hi"))
        assert len(server.requests) == 1
    assert advice in str(caught.value)
    assert caught.value.attempts == 1
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("protocol", "name"),
    [(OPENAI, ""), (ANTHROPIC, "ANTHROPIC_API_KEY"), (GEMINI, "GEMINI_API_KEY")],
)
async def test_a_refused_key_names_the_variable_only_where_it_is_read(
    protocol: Protocol, name: str, monkeypatch: pytest.MonkeyPatch
):
    for known in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(known, KEY)
    async with protocol.server(protocol.failure(401)) as server:
        with pytest.raises(ModelProviderException) as caught:
            await answer(protocol.model(server, api_key=None).open(), UserText("Hi"))
    remedy = f"set {name}, or give api_key= to the model" if name else "give another api_key="
    assert remedy in str(caught.value)
    assert name or "OPENAI_API_KEY" not in str(caught.value)


async def test_openais_own_variable_is_named_where_the_address_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    async with OPENAI.server(OPENAI.failure(401)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        with pytest.raises(ModelProviderException, match="set OPENAI_API_KEY"):
            await answer(OpenAIModel("gpt-4o").open(), UserText("Hi"))


UNPARSED = "The model produced output that does not match the expected peg-native format"


async def test_output_that_the_server_cannot_parse_is_asked_for_once_more_without_a_wait():
    waits: list[float] = []
    bad = openai_wire.failure(500, {"error": {"code": 500, "message": UNPARSED, "type": "x"}})
    in_stream = stream(
        b"error: " + bad.body.removeprefix(b'{"error":').removesuffix(b"}") + b"\n\n"
    )
    for first in (bad, in_stream):
        async with OPENAI.server(first, OPENAI.text("ok"), bad, bad) as server:
            session = OPENAI.model(server, retry=noting(waits)).open()
            await answer(session, UserText("Hi"))
            assert session.transcript[-1] == ModelText("ok")
            with pytest.raises(ModelProviderException) as caught:
                await answer(session, UserText("Hi"))
            assert len(server.requests) == 4
        assert "cannot parse what the model wrote" in str(caught.value)
        assert "try again later" not in str(caught.value)
    assert waits == [0.0] * 4


async def test_tokens_of_a_failed_attempt_are_counted_where_the_provider_told():
    reply = ANTHROPIC.text("one ", "two ", "three")
    async with ANTHROPIC.server(cut_after(reply, half(reply)), reply) as server:
        session = ANTHROPIC.model(server).open()
        events = await answer(session, UserText("Hi"))
    [failed] = [event for event in events if isinstance(event, AttemptFailed)]
    end = events[-1]
    assert isinstance(end, ResponseEnded)
    assert failed.usage.input > 0
    assert end.exchange.usage.input == 2 * failed.usage.input
    assert session.usage == end.exchange.usage
