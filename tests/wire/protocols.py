"""The three protocols side by side, so that one test can be run over each."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from treefold.core.model import Model, Session
from treefold.core.model_events import ModelEvent, PartCompleted
from treefold.core.transcript import ToolResult, ToolUse, UserText
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.gemini.model import GeminiModel
from treefold.models.openai.model import OpenAIModel
from treefold.models.retry import BACKOFF, Retry, Timers
from wire import anthropic_wire, gemini_wire, openai_wire
from wire.replies import Reply, failure
from wire.server import ModelServer

KEY = "sk-this-is-the-secret-key"

for package in ("anthropic", "google.genai", "openai"):
    import_module(package)  # takes seconds, for which no test is to wait


@dataclass(frozen=True)
class Protocol:
    """How to say the same things in one protocol."""

    name: str
    make: Callable[..., Model]
    wire: Any
    text: Callable[..., Reply]  # a text, streamed in the given pieces
    calls: Callable[..., Reply]  # calls, each as (id, name, arguments in JSON)
    failure: Callable[..., Reply]  # a status and a message in the provider's kind of body
    failure_event: Callable[..., bytes]  # the same, in the middle of a stream
    path: str = ""

    def __repr__(self) -> str:
        return self.name

    def server(self, *script: Reply, **options: Any) -> ModelServer:
        """Return a server with *script*."""
        return ModelServer(script, **options)

    def model(self, server: ModelServer, **options: Any) -> Model:
        """Return a model that talks to *server*, and does not really wait before it retries."""
        given = {"api_key": KEY, "retry": noting([]), "timers": Timers(60, 60)} | options
        return self.make(base_url=server.url + self.path, **given)

    def messages(self, body: bytes) -> str:
        """Return the messages in *body* as they were sent, without the bracket that ends them."""
        text = body.decode()
        field = '"contents":[' if self.name == "gemini" else '"messages":['
        at = text.index(field)
        _, end = json.JSONDecoder().raw_decode(text, at + len(field) - 1)
        return text[at : end - 1]


def noting(waits: list[float], delays: Sequence[float] = BACKOFF) -> Retry:
    """Return the usual schedule, with a clock that notes the waits instead of waiting."""

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return Retry(delays, sleep=sleep)


async def answer(session: Session, *inputs: UserText | ToolResult) -> list[ModelEvent]:
    """Send *inputs* and return all events of the response."""
    return [event async for event in session.send(*inputs)]


def asked(events: Sequence[ModelEvent]) -> list[ToolUse]:
    """Return the calls that a response asks for."""
    parts = [event.part for event in events if isinstance(event, PartCompleted)]
    return [part for part in parts if isinstance(part, ToolUse)]


def _openai(**options: Any) -> Model:
    return OpenAIModel("gpt-4o", **options)


def _openai_failure(status: int, message: str = "It failed.", **headers: str) -> Reply:
    return openai_wire.failure(
        status, {"error": {"message": message, "type": "x"}}, _dashed(headers)
    )


def _anthropic(**options: Any) -> Model:
    return AnthropicModel("claude-opus-4-1", **options)


def _anthropic_text(*pieces: str) -> Reply:
    return anthropic_wire.message(anthropic_wire.Text(pieces))


def _anthropic_calls(*calls: tuple[str, str, str]) -> Reply:
    thought = anthropic_wire.Thinking(["I need a tool."], "c2lnbmVk")
    blocks = [anthropic_wire.ToolUse(id, name, [args]) for id, name, args in calls]
    return anthropic_wire.message(thought, *blocks, stop_reason="tool_use")


def _anthropic_failure(status: int, message: str = "It failed.", **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": "x", "message": message}}
    return failure(status, body, _dashed(headers))


def _gemini(**options: Any) -> Model:
    return GeminiModel("gemini-2.5-pro", **options)


def _gemini_text(*pieces: str) -> Reply:
    *first, last = [[gemini_wire.text(piece)] for piece in pieces]
    end = gemini_wire.chunk(last, finish="STOP", usage=gemini_wire.USAGE)
    return gemini_wire.reply(*map(gemini_wire.chunk, first), end)


def _gemini_calls(*calls: tuple[str, str, str]) -> Reply:
    parts = [gemini_wire.call(name, json.loads(args), id) for id, name, args in calls]
    return gemini_wire.reply(gemini_wire.chunk(parts, finish="STOP", usage=gemini_wire.USAGE))


def _gemini_failure(status: int, message: str = "It failed.", **headers: str) -> Reply:
    return gemini_wire.error(status, "X", message, headers=_dashed(headers))


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


PROTOCOLS = (
    Protocol(
        "openai",
        _openai,
        openai_wire,
        openai_wire.text,
        lambda *calls: openai_wire.calls(calls),
        _openai_failure,
        lambda message: openai_wire.error_event("server", message),
        "/v1",
    ),
    Protocol(
        "anthropic",
        _anthropic,
        anthropic_wire,
        _anthropic_text,
        _anthropic_calls,
        _anthropic_failure,
        lambda message: anthropic_wire.error_event("overloaded_error", message),
    ),
    Protocol(
        "gemini",
        _gemini,
        gemini_wire,
        _gemini_text,
        _gemini_calls,
        _gemini_failure,
        lambda message: gemini_wire.error_event(503, "UNAVAILABLE", message),
    ),
)


@pytest.fixture(params=PROTOCOLS, ids=str)
def protocol(request: pytest.FixtureRequest) -> Protocol:
    """Each protocol in turn; the conftest.py of a folder imports it."""
    return request.param
