"""Long responses take time in proportion to their length, and leave time for others."""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeys.roles import call
from support import add
from treefold import CodeFunction, RunContext, Runtime, agent, registries
from treefold.core.errors import ModelProviderException
from treefold.core.model import ModelSettings, Session
from treefold.core.model_events import ModelEvent, ToolUseDelta
from treefold.core.transcript import UserText
from treefold.models import OpenAIModel, Profile
from treefold.models.json_text import ValueCounter
from treefold.models.sse import BrokenStreamError, JsonEventParser
from wire import ModelServer, stream
from wire.protocols import KEY, PROTOCOLS, Protocol, answer

OPENAI, _, _ = PROTOCOLS


def fragments(count: int) -> bytes:
    """One call whose name comes again with each fragment."""
    lines = [
        {"choices": [{"delta": {"tool_calls": [
            {"function": {"name": "add", "arguments": f'{{"a{n}":1' if n == 0 else f',"a{n}":1'}}
        ]}}]}
        for n in range(count)
    ]  # fmt: skip
    return b"".join(f"data: {json.dumps(line)}\n\n".encode() for line in lines)


def calls(count: int) -> bytes:
    """Many calls, each in one fragment."""
    entries = [
        {"index": n, "id": f"c{n}", "function": {"name": "add", "arguments": "{}"}}
        for n in range(count)
    ]
    lines = [{"choices": [{"delta": {"tool_calls": [entry]}}]} for entry in entries]
    return b"".join(f"data: {json.dumps(line)}\n\n".encode() for line in lines)


def pieces(count: int) -> bytes:
    """JSON over many data lines."""
    return b'data: {"choices":[\n' + b"data: {},\n" * count + b"data: {}]}\n\n"


def pieces_that_end_like_an_object(count: int) -> bytes:
    line = b'data: ,{"delta":{"role":"assistant assistant assistant assistant assistant"}}\n'
    return b'data: {"choices":[{}\n' + line * count + b"data: ]}\n\n"


def deltas(*deltas: Any) -> bytes:
    lines = [{"choices": [{"delta": delta}]} for delta in deltas]
    return b"".join(f"data: {json.dumps(line)}\n\n".encode() for line in lines)


def leading_space(count: int) -> bytes:
    return deltas(*[{"content": " " * 99 + "\n"}] * count)


def space_in_thoughts(count: int) -> bytes:
    return deltas({"content": "<think>Hm"}, *[{"content": " " * 99 + "\n"}] * count)


def named_fragments(count: int) -> bytes:
    """Arguments in fragments that all have the name of the function, and end like an object."""
    begin, end = '{"a":[0', "]}"
    middle = [f',{{"b":"{"x" * 90}"}}'] * count
    function = [{"name": "add", "arguments": piece} for piece in (begin, *middle, end)]
    return deltas(*[{"tool_calls": [{"index": 0, "function": one}]} for one in function])


def endless_name(count: int) -> bytes:
    names = ["-", *["x" * 1000] * count]
    return deltas(*[{"tool_calls": [{"index": 0, "function": {"name": name}}]} for name in names])


@pytest.mark.parametrize(
    "stream",
    [
        fragments,
        calls,
        pieces,
        pieces_that_end_like_an_object,
        leading_space,
        space_in_thoughts,
        named_fragments,
        endless_name,
    ],
)
def test_the_time_to_decode_grows_with_the_stream_and_not_with_its_square(
    stream: Callable[[int], bytes],
):
    model = OpenAIModel("m", api_key=KEY, profile=Profile(max_response_calls=None))

    def seconds(count: int) -> float:
        data = stream(count)
        best = 1e9
        for _ in range(3):
            decoder = model.dialect("", [add], ModelSettings()).decoder()
            start = time.process_time()
            decoder.feed(data)
            decoder.end()
            best = min(best, time.process_time() - start)
        return best

    assert seconds(4000) < 10 * seconds(1000)  # its square would be 16 times as much


# --- How many calls, and who runs meanwhile


async def read_into(events: list[ModelEvent], session: Session) -> None:
    async for event in session.send(UserText("x")):
        events.append(event)  # noqa: PERF401 - also those before an exception


async def test_a_response_of_too_many_calls_fails_at_once_and_is_not_asked_for_again(
    protocol: Protocol,
):
    many = protocol.calls(*[call(f"c{n}", "add", a=n, b=1) for n in range(4)])
    async with ModelServer([many]) as server:
        model = protocol.model(server)
        assert model.profile.max_response_calls == 128  # pyright: ignore[reportAttributeAccessIssue]
        profile = replace(model.profile, max_response_calls=3)  # pyright: ignore[reportAttributeAccessIssue]
        session = protocol.model(server, profile=profile).open("", [add])
        with pytest.raises(ModelProviderException, match="more than 3 calls") as caught:
            await answer(session, UserText("x"))
        assert len(server.requests) == 1
        assert not session.exchanges
        server.add(many)
        enough = replace(profile, max_response_calls=4)
        session = protocol.model(server, profile=enough).open("", [add])
        await answer(session, UserText("x"))
    assert len(session.pending) == 4
    assert "raise max_response_calls in the model's profile" in str(caught.value)


NUMBERS = [0] * 100


@pytest.mark.parametrize(
    ("value", "most", "too_few"),
    [
        ("x" * 1000, 1000 + len('{"value":""}') + 50, 1000),
        # What looks like values inside of a string is none.
        ('[{,"' * 300, 4 * 300 + 300 + len('{"value":""}') + 50, 1500),
        (NUMBERS, 200 + len('{"value":[]}') + 50 * 101, 5000),
    ],
    ids=["text", "text like JSON", "numbers"],
)
async def test_a_response_that_is_too_long_fails_and_is_not_asked_for_again(
    protocol: Protocol, value: Any, most: int, too_few: int
):
    arguments = json.dumps({"value": value}, separators=(",", ":"))
    reply = protocol.calls(("c1", "add", arguments))
    async with ModelServer([reply]) as server:
        model = protocol.model(server)
        assert model.profile.max_response_chars == 600_000  # pyright: ignore[reportAttributeAccessIssue]
        profile = replace(model.profile, max_response_chars=too_few)  # pyright: ignore[reportAttributeAccessIssue]
        session = protocol.model(server, profile=profile).open("", [add])
        with pytest.raises(ModelProviderException, match=f"more than {too_few:,} char") as caught:
            await answer(session, UserText("x"))
        assert len(server.requests) == 1
        assert not session.exchanges
        server.add(reply)
        thought = len("I need a tool.")  # some protocols think before they call
        data = 50  # such as the names and types of its parts
        enough = replace(profile, max_response_chars=most + thought + data)
        session = protocol.model(server, profile=enough).open("", [add])
        await answer(session, UserText("x"))
    assert len(session.pending) == 1
    assert "raise max_response_chars in the model's profile" in str(caught.value)


async def test_a_long_text_counts_as_well(protocol: Protocol):
    async with ModelServer([protocol.text("x" * 600, "y" * 600)]) as server:
        profile = replace(protocol.model(server).profile, max_response_chars=1_000)  # pyright: ignore[reportAttributeAccessIssue]
        session = protocol.model(server, profile=profile).open()
        with pytest.raises(ModelProviderException, match="more than 1,000 characters"):
            await answer(session, UserText("x"))


LONG, MANY = "x" * 10_000, [{"a": 0}] * 400


def of_openai(delta: dict[str, Any]) -> bytes:
    return deltas(*[delta] * 30)


def of_anthropic(block: dict[str, Any], delta: dict[str, Any] | None = None) -> bytes:
    begins = [
        {"type": "content_block_start", "index": n, "content_block": block}
        for n in range(1 if delta else 30)
    ]
    goes_on = {"type": "content_block_delta", "index": 0, "delta": delta}
    return b"".join(
        f"data: {json.dumps(one)}\n\n".encode() for one in [*begins, *[goes_on] * 30 * bool(delta)]
    )


def of_gemini(part: dict[str, Any]) -> bytes:
    chunk = {"candidates": [{"content": {"parts": [part]}}]}
    return f"data: {json.dumps(chunk)}\n\n".encode() * 30


def call_with(**fields: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"name": "add"}, **fields}]}


@pytest.mark.parametrize(
    ("protocol", "sent"),
    [
        ("openai", of_openai({"reasoning_details": [{"type": "x", "data": LONG}]})),
        ("openai", of_openai({"reasoning_details": MANY})),
        ("openai", of_openai({"refusal": LONG})),
        ("openai", of_openai({"content": "<think></think>" * 1_000})),
        ("openai", of_openai(call_with(signature=LONG))),
        ("openai", of_openai(call_with(extra=MANY))),
        ("openai", deltas(*[call_with(index=n, id=f"{n}{LONG}") for n in range(30)])),
        ("anthropic", of_anthropic({"type": "server_tool_use", "id": "s", "name": "search"},
                                   {"type": "input_json_delta", "partial_json": LONG})),
        ("anthropic", of_anthropic({"type": "server_tool_use", "input": {"query": LONG}})),
        ("anthropic", of_anthropic({"type": "of the future", "numbers": MANY})),
        ("anthropic", of_anthropic({"type": "text", "text": "", LONG: None})),
        ("anthropic", of_anthropic({"type": "text", "text": ""},
                                   {"type": "citations_delta", "citation": {"cited_text": LONG}})),
        ("anthropic", of_anthropic({"type": "thinking", "thinking": ""},
                                   {"type": "signature_delta", "signature": LONG})),
        ("gemini", of_gemini({"text": "", "thoughtSignature": LONG})),
        ("gemini", of_gemini({"inlineData": {"mimeType": "image/png", "data": LONG}})),
        ("gemini", of_gemini({"text": MANY, "thought": True})),
        ("gemini", of_gemini({"functionCall": {"name": "add", "others": MANY}})),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:0].decode(),
)  # fmt: skip
async def test_what_is_kept_and_not_shown_counts_as_well(protocol: str, sent: bytes):
    [kind] = [one for one in PROTOCOLS if one.name == protocol]
    async with ModelServer([stream(sent)]) as server:
        profile = replace(kind.model(server).profile, max_response_chars=20_000)  # pyright: ignore[reportAttributeAccessIssue]
        session = kind.model(server, profile=profile).open("", [add])
        with pytest.raises(ModelProviderException, match="more than 20,000 characters"):
            await answer(session, UserText("x"))


async def test_thinking_that_a_server_frames_in_small_pieces_is_not_too_long():
    details = [
        {"type": "reasoning.text", "text": "Hmm ", "format": "anthropic-claude-v1", "index": 0}
    ]
    thoughts = deltas(*[{"reasoning": "Hmm ", "reasoning_details": details}] * 16_000)
    ends = deltas({"content": "Yes."})
    async with ModelServer([stream(thoughts + ends + b"data: [DONE]\n\n")]) as server:
        session = OPENAI.model(server).open()
        await answer(session, UserText("x"))
    assert len(session.exchanges) == 1


async def test_values_are_counted_in_pieces_of_any_size():
    text = '{"a":["b\\\\",1,"\\",[{"],2,{"c":"\\u002c,"}],"d":"e'
    whole = ValueCounter().feed(text)
    assert whole == 8
    for size in range(1, len(text)):
        counter = ValueCounter()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert sum(map(counter.feed, pieces)) == whole, size


async def test_an_event_that_would_take_long_to_parse_is_not_parsed():
    events = JsonEventParser(max_chars=100_000)
    with pytest.raises(BrokenStreamError, match="more than 400,000 bytes"):
        events.feed(b'data: {"choices":[' + b"0," * 40_000 + b"0]}\n\n")


async def test_a_long_response_blocks_the_loop_for_a_few_times_as_long_as_it_takes_to_parse(
    tmp_path: Path,
):
    code = '    return {"a": "b\\n"}\n' * 16_000
    arguments = json.dumps({"at": code})
    pieces = [arguments[at : at + 500] for at in range(0, len(arguments), 500)]
    functions = [{"name": "look", "arguments": pieces[0]}] + [
        {"arguments": piece} for piece in pieces[1:]
    ]
    reply = stream(
        deltas(*[{"tool_calls": [{"index": 0, "id": "c", "function": one}]} for one in functions])
        + b"data: [DONE]\n\n"
    )

    async def longest_block(number: int) -> float:
        """Return the longest time in which no other task ran, in seconds of this thread."""
        blocks: list[float] = []

        async def others() -> None:
            last = time.thread_time()
            while True:
                await asyncio.sleep(0)
                blocks.append(-last + (last := time.thread_time()))

        # A long result would be cut, and reading it be offered, which takes as long again.
        def seen(ctx: RunContext, at: str) -> str:
            return "seen"

        @agent(uses=[CodeFunction(name="look", desc="Look.", callable=seen)])
        def looks() -> str:
            return "Look."

        async with ModelServer([reply, OPENAI.text("Done.")], checks=False) as server:
            store = str(tmp_path / f"{number}.db")
            async with Runtime([looks], store=store, models=OPENAI.model(server)) as runtime:
                gc.collect()
                gc.disable()
                try:
                    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                        running = group.create_task(others())
                        await runtime.invoke(looks)
                        running.cancel()
                finally:
                    gc.enable()
        return max(blocks)

    def time_to_parse() -> float:
        begin = time.thread_time()
        json.loads(arguments)
        return time.thread_time() - begin

    ratios: list[float] = []
    with registries():
        for number in range(5):
            parsing = min(time_to_parse() for _ in range(5))
            ratios.append(await longest_block(number) / parsing)
    # Other programs only make it longer.
    assert min(ratios) < 10


async def test_calls_in_text_count_as_calls():
    text = '{"name": "add", "arguments": {"a": 1, "b": 2}}' * 129
    async with ModelServer([OPENAI.text(text)]) as server:
        session = OPENAI.model(server).open("", [add])
        with pytest.raises(ModelProviderException, match="more than 128 calls"):
            await answer(session, UserText("x"))


async def test_a_hundred_thousand_calls_are_not_read():
    entries = [{"index": n, "function": {"name": "add", "arguments": "{}"}} for n in range(10**5)]
    lines = [deltas({"tool_calls": entries[n : n + 1000]}) for n in range(0, 10**5, 1000)]
    async with ModelServer([stream(*lines)]) as server:
        session = OPENAI.model(server).open("", [add])
        read: list[ModelEvent] = []
        with pytest.raises(ModelProviderException, match="more than 128 calls"):
            await read_into(read, session)
    assert len([event for event in read if isinstance(event, ToolUseDelta)]) == 129


async def test_others_run_while_a_long_response_is_decoded():
    events, rounds, most = 0, 0, 0

    async def others() -> None:
        nonlocal events, rounds, most
        while True:
            most = max(most, events)
            events, rounds = 0, rounds + 1
            await asyncio.sleep(0)

    burst = deltas(*[{"content": "x"}] * 20_000)  # in one piece, as a fast server sends it
    async with ModelServer([stream(burst + b"data: [DONE]\n\n")]) as server:
        session = OPENAI.model(server).open()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            running = group.create_task(others())
            async for _ in session.send(UserText("x")):
                events += 1
            running.cancel()
    assert rounds
    assert most < 1_000
