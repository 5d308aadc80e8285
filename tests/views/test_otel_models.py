"""What spans tell of the servers of models and of their responses, as a collector receives it."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from journeys.roles import call
from spans import PATIENCE, collector, provider_to
from support import look
from treefold import MemoryStore, Runtime, agent
from treefold.views import otel
from treefold.views.conventions import SCHEMA_URL
from wire.protocols import PROTOCOLS, Protocol
from wire.replies import slow_first_byte
from wire.server import ModelServer

OPENAI, _, _ = PROTOCOLS
IDS = {"openai": "chatcmpl-wire", "anthropic": "msg_wire", "gemini": "wire"}


@agent(uses=[look])
def ask(topic: str) -> str:
    """Ask about a topic.

    Nobody needs to read this.
    """
    return f"What of {topic}?"


async def spans_of(protocol: Protocol, server: ModelServer) -> dict[str, dict[str, Any]]:
    """Run an agent on *server*; return the attributes of its spans, by name, and the schema."""
    with collector() as (address, taken), provider_to(address) as provider:
        runtime = Runtime([ask], models=protocol.model(server), store=MemoryStore())
        async with runtime:
            tracing = otel.trace(runtime, provider)
            await runtime.invoke(ask, {"topic": "moss"})
            assert await asyncio.to_thread(tracing.close, PATIENCE)
        await asyncio.to_thread(provider.force_flush)
    found: dict[str, dict[str, Any]] = {}
    for request in taken:
        for scope in (scope for one in request.resource_spans for scope in one.scope_spans):
            assert scope.schema_url == SCHEMA_URL
            for span in scope.spans:
                found[span.name] = {item.key: _value(item.value) for item in span.attributes}
    return found


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
async def test_a_response_has_its_id_its_model_and_its_server(protocol: Protocol):
    script = [protocol.calls(call("c1", "look", at="moss")), protocol.text("It is green.")]
    async with protocol.server(*script) as server:
        spans = await spans_of(protocol, server)
        host = {"server.address": "127.0.0.1", "server.port": urlsplit(server.url).port}
    [(name, chat)] = [item for item in spans.items() if item[0].startswith("chat ")]
    assert name == f"chat {chat['gen_ai.request.model']}"
    assert chat["gen_ai.response.id"] == IDS[protocol.name]
    assert chat["gen_ai.response.model"] == protocol.wire.MODEL
    assert chat["gen_ai.response.time_to_first_chunk"] >= 0
    assert host.items() <= chat.items()
    assert host.items() <= spans["invoke_agent ask"].items()
    assert spans["invoke_agent ask"]["gen_ai.agent.description"] == "Ask about a topic."
    assert spans["execute_tool look"]["gen_ai.tool.description"] == "Look at something."


async def test_the_time_to_the_first_chunk_counts_from_the_request():
    late = slow_first_byte(OPENAI.text("It is green."), 0.25)
    async with OPENAI.server(OPENAI.failure(503), late) as server:
        spans = await spans_of(OPENAI, server)
    assert spans["chat gpt-4o"]["gen_ai.response.time_to_first_chunk"] >= 0.25
