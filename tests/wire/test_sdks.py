"""The streams as the providers' own libraries read them."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from wire import (
    ModelServer,
    Reply,
    Stall,
    anthropic_wire,
    cut_after,
    gemini_wire,
    in_pieces,
    openai_wire,
    then,
)
from wire.anthropic_wire import Redacted, Text, Thinking, ToolUse

anthropic: Any = pytest.importorskip("anthropic")
openai: Any = pytest.importorskip("openai")
httpx2: Any = pytest.importorskip("httpx2")
genai: Any = pytest.importorskip("google.genai")

pytestmark = pytest.mark.filterwarnings(  # google.genai derives from a class of aiohttp
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)
SIGNATURE = base64.b64encode(b"signed").decode()
ASKED: list[Any] = [{"role": "user", "content": "Grüße?"}]


@asynccontextmanager
async def openai_client(*script: Reply) -> AsyncGenerator[tuple[ModelServer, Any]]:
    async with (
        asyncio.timeout(60),
        ModelServer(script) as server,
        openai.AsyncOpenAI(api_key="k", base_url=server.url + "/v1", max_retries=0) as client,
    ):
        yield server, client


@asynccontextmanager
async def anthropic_client(
    *script: Reply,
) -> AsyncGenerator[tuple[ModelServer, Any]]:
    async with (
        asyncio.timeout(60),
        ModelServer(script) as server,
        anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=0) as client,
    ):
        yield server, client


@asynccontextmanager
async def gemini_client(*script: Reply) -> AsyncGenerator[tuple[ModelServer, Any]]:
    async with asyncio.timeout(60), ModelServer(script) as server:
        client = genai.Client(
            api_key="k", http_options=genai.types.HttpOptions(base_url=server.url)
        )
        try:
            yield server, client.aio.models
        finally:
            await client.aio.aclose()
            client.close()


async def completed(client: Any) -> list[Any]:
    stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
    return [chunk async for chunk in stream]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_openai_reads_text_and_usage(size: int):
    reply = in_pieces(openai_wire.text("Grü", "ße 🌍"), size)
    async with openai_client(reply) as (server, client):
        chunks = await completed(client)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Grüße 🌍"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 3
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.disconnects == 0


async def test_openai_reads_calls_and_reasoning():
    made = [("call_1", "add", '{"a":', "1}"), ("call_2", "now")]
    script = openai_wire.calls(made, text=["Well"]), openai_wire.reasoning("Hm", calls=made[:1])
    async with openai_client(*script, openai_wire.calls(made[:1])) as (_, client):
        async with client.chat.completions.stream(model="m", messages=ASKED) as stream:
            message = (await stream.get_final_completion()).choices[0].message
        chunks = await completed(client)
        single = await completed(client)
    assert message.content == "Well"
    asked = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()]
    assert asked == [("call_1", "add", '{"a":1}'), ("call_2", "now", "")]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "Hm"
    assert single[0].choices[0].delta.tool_calls[0].function.name == "add"
    assert single[0].choices[0].delta.content is None


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("invalid_request", openai.BadRequestError, None),
        ("invalid_key", openai.AuthenticationError, "invalid_api_key"),
        ("forbidden", openai.PermissionDeniedError, "unsupported_country_region_territory"),
        ("no_model", openai.NotFoundError, "model_not_found"),
        ("rate_limit", openai.RateLimitError, "rate_limit_exceeded"),
        ("insufficient_quota", openai.RateLimitError, "insufficient_quota"),
        ("server", openai.InternalServerError, None),
    ],
)
async def test_openai_raises_errors(kind: str, error: Any, code: str):
    async with openai_client(openai_wire.error(kind)) as (_, client):
        with pytest.raises(error) as caught:
            await completed(client)
    assert caught.value.code == code


async def test_openai_meets_faults_in_a_stream():
    reply = openai_wire.text("a", openai_wire.error_event("server"))
    async with openai_client(reply, cut_after(reply, 300)) as (_, client):
        with pytest.raises(openai.APIError, match="The server had an error"):
            await completed(client)
        # Its first releases with this transport raise what the transport does.
        with pytest.raises((openai.APIConnectionError, httpx2.ReadError)):
            await completed(client)


async def test_a_library_that_is_stopped_is_seen_to_leave():
    async with openai_client(openai_wire.text("a", Stall())) as (server, client):
        stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        await server.disconnected.wait()
    assert server.disconnects == 1


@pytest.mark.parametrize("size", [1, 100_000])
async def test_anthropic_reads_blocks_of_every_kind(size: int):
    blocks = (
        Thinking(["Let me ", "see"], SIGNATURE),
        Redacted("c2VjcmV0"),
        Text(["Grü", "ße 🌍"]),
        ToolUse("toolu_1", "add", ['{"a":', "1}"]),
        ToolUse("toolu_2", "now"),
    )
    reply = in_pieces(anthropic_wire.message(*blocks, stop_reason="tool_use"), size)
    async with (
        anthropic_client(reply) as (server, client),
        client.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream,
    ):
        message = await stream.get_final_message()
    thinking, redacted, text, add, now = message.content
    assert (thinking.type, redacted.type, text.type) == ("thinking", "redacted_thinking", "text")
    assert (thinking.thinking, thinking.signature) == ("Let me see", SIGNATURE)
    assert (redacted.data, text.text) == ("c2VjcmV0", "Grüße 🌍")
    assert (add.type, now.type) == ("tool_use", "tool_use")
    assert (add.id, add.input, now.input) == ("toolu_1", {"a": 1}, {})
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 7)
    assert message.usage.cache_read_input_tokens == 3
    assert server.requests[0].path == "/v1/messages"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("invalid_request_error", anthropic.BadRequestError),
        ("authentication_error", anthropic.AuthenticationError),
        ("rate_limit_error", anthropic.RateLimitError),
        ("overloaded_error", anthropic.OverloadedError),
    ],
)
async def test_anthropic_raises_errors(kind: str, error: Any):
    opened = anthropic_wire.message(Text(["a"], closed=False), stop_reason=None, closed=False)
    broken = then(opened, anthropic_wire.error_event(kind))
    async with anthropic_client(anthropic_wire.error(kind), broken) as (_, client):
        with pytest.raises(error) as caught:
            await client.messages.create(model="m", max_tokens=9, messages=ASKED)
        stream = await client.messages.create(model="m", max_tokens=9, messages=ASKED, stream=True)
        with pytest.raises(anthropic.APIStatusError, match=kind) as late:
            _ = [event async for event in stream]
    assert caught.value.status_code == anthropic_wire.ERRORS[kind][0]
    assert late.value.status_code == 200  # it is an error of a request that went well


async def generated(models: Any) -> list[Any]:
    stream = await models.generate_content_stream(model="m", contents="Grüße?")
    return [chunk async for chunk in stream]


@pytest.mark.parametrize("size", [1, 100_000])
async def test_gemini_reads_parts_of_every_kind(size: int):
    reply = gemini_wire.reply(
        gemini_wire.chunk([gemini_wire.thought("Hm")]),
        gemini_wire.chunk([gemini_wire.text("Grüße 🌍")]),
        gemini_wire.chunk([gemini_wire.call("add", {"a": 1}, "c1", SIGNATURE)]),
        gemini_wire.chunk([gemini_wire.text("", SIGNATURE)], "STOP", gemini_wire.USAGE),
    )
    async with gemini_client(in_pieces(reply, size)) as (server, models):
        chunks = await generated(models)
    thought, text, call, last = [c.candidates[0].content.parts[0] for c in chunks]
    assert (thought.text, thought.thought, text.text) == ("Hm", True, "Grüße 🌍")
    assert (call.function_call.name, call.function_call.args) == ("add", {"a": 1})
    assert (call.function_call.id, call.thought_signature) == ("c1", b"signed")
    assert last.thought_signature == b"signed"
    assert chunks[-1].usage_metadata.thoughts_token_count == 2
    assert server.requests[0].path.endswith("/models/m:streamGenerateContent?alt=sse")


async def test_gemini_reads_a_blocked_prompt_and_raises_errors():
    details = [gemini_wire.quota_failure(), gemini_wire.retry_info("3s")]
    over = gemini_wire.error(429, message="Too many.", details=details)
    async with gemini_client(gemini_wire.blocked_prompt(), over) as (_, models):
        (chunk,) = await generated(models)
        with pytest.raises(genai.errors.ClientError) as caught:
            await generated(models)
    assert not chunk.candidates
    assert chunk.prompt_feedback.block_reason == genai.types.BlockedReason.SAFETY
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
    assert caught.value.details["error"]["details"][1]["retryDelay"] == "3s"
