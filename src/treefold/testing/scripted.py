"""A model that says what it was told to.

Everything but the network is real: the session, its history and checks, the decoder, the retries.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.function import Function
from treefold.core.model import ModelSettings
from treefold.core.provider import Provider
from treefold.core.transcript import ModelText, ThinkingPart, ToolUse, TranscriptPart
from treefold.core.usage import TokenUsage
from treefold.models.json_text import compact
from treefold.models.openai.dialect import OpenAIDialect
from treefold.models.profiles import Profile
from treefold.models.request_error import RequestError
from treefold.models.retry import Retry, Timers
from treefold.models.wire_model import WireModel

HANGS: Final = TimeoutError("this reply never comes")  # compared by identity


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """A reply that is a failure of the provider: an HTTP status, or None for a broken connection.

    Example:
        >>> from treefold.testing import ScriptedFailure
        >>> ScriptedFailure(429, "slow down", retry_after=2).status
        429
    """

    status: int | None = None
    message: str = "the script says so"
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """What the model was shown: the whole conversation, and which functions it might call.

    Example:
        >>> from treefold import UserText
        >>> from treefold.testing import ScriptedRequest
        >>> ScriptedRequest("Be brief.", ("add",), (UserText("2 + 2?"),)).functions
        ('add',)
    """

    system: str
    functions: tuple[str, ...]
    transcript: tuple[TranscriptPart, ...]


Reply = str | TranscriptPart | Sequence[TranscriptPart] | ScriptedFailure | TimeoutError
Script = Reply | Callable[[ScriptedRequest], Reply]


class ScriptedModel(WireModel):
    """Gives its replies one by one, and keeps what it was shown in ``requests``.

    A reply is a text, a part or a list of parts (ModelText, ThinkingPart, ToolUse), a
    ScriptedFailure, ``HANGS`` for one that never comes, or a function that is given the
    ScriptedRequest and returns one of these. A function that stands last answers all that follows.
    A failure is final unless *retry* says when to try again.

    Example:
        >>> import asyncio
        >>> from treefold import UserText
        >>> from treefold.testing import ScriptedModel
        >>> async def main():
        ...     session = ScriptedModel("Hello!").open("You greet people.")
        ...     async for event in session.send(UserText("Hi")):
        ...         pass
        ...     return session.transcript
        >>> asyncio.run(main())
        [UserText(text='Hi'), ModelText(text='Hello!')]
    """

    provider = Provider.OpenAI
    key_names: ClassVar[tuple[str, ...]] = ()
    url_name: ClassVar[str] = ""

    def __init__(
        self,
        *script: Script,
        name: str = "scripted",
        usage: TokenUsage | None = None,
        retry: Retry | None = None,
        timers: Timers | None = None,
        price: Callable[[TokenUsage], Decimal | None] | None = None,
    ) -> None:
        profile = Profile(cumulative=False, think_tags=("\0<", "\0>"))  # texts are texts
        super().__init__(
            name,
            profile=profile,
            retry=retry or Retry(()),
            timers=timers,
            price=price or _unknown_price,
        )
        self.requests: list[ScriptedRequest] = []
        self._script = deque(script)
        self._usage = usage or TokenUsage()

    @property
    def name(self) -> str:
        return self.model

    def dialect(
        self, system: str, functions: Sequence[Function], settings: ModelSettings
    ) -> OpenAIDialect:
        return OpenAIDialect(self.model, self.profile, system, functions, settings)

    def endpoint(self) -> "ScriptedEndpoint":
        return ScriptedEndpoint(self._next_reply, self._usage)

    def _next_reply(self, request: ScriptedRequest) -> Reply:
        self.requests.append(request)
        if not self._script:
            raise UsageError(f"the script of {self.name!r} has no more replies")
        last = len(self._script) == 1
        reply = self._script[0] if last and callable(self._script[0]) else self._script.popleft()
        return reply(request) if callable(reply) else reply


def _unknown_price(usage: TokenUsage) -> None:
    """A script costs what somebody says it does."""


class ScriptedEndpoint:
    """Stands where a server would."""

    address = "the script"
    key_name = ""

    def __init__(self, reply: Callable[[ScriptedRequest], Reply], usage: TokenUsage) -> None:
        self._reply = reply
        self._usage = usage

    def clean(self, error: RequestError) -> RequestError:
        return error

    async def open(self, body: bytes) -> "ScriptedStream | SilentStream":
        reply = self._reply(_request(json.loads(body)))
        if isinstance(reply, ScriptedFailure):
            raise RequestError(
                message=reply.message, status=reply.status, retry_after=reply.retry_after
            )
        if reply is HANGS:
            return SilentStream()
        return ScriptedStream(_encoded(reply, self._usage))


class ScriptedStream:
    """The bytes of one reply."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = deque(chunks)

    async def read(self) -> bytes:
        await asyncio.sleep(0)  # as a socket would
        return self._chunks.popleft() if self._chunks else b""

    async def close(self) -> None:
        self._chunks.clear()


class SilentStream:
    """A reply whose first byte never comes."""

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def close(self) -> None:
        """Close it; there is nothing to let go of."""


def _request(body: dict[str, Any]) -> ScriptedRequest:
    reader = OpenAIDialect("", Profile(), "", (), ModelSettings())
    messages: list[dict[str, Any]] = body["messages"]
    system = "".join(message["content"] for message in messages if message["role"] == "system")
    functions = tuple(tool["function"]["name"] for tool in body.get("tools", ()))
    parts = [part for message in messages for part in reader.read(compact(message), 0, ())]
    return ScriptedRequest(system, functions, tuple(parts))


def _encoded(reply: Any, usage: TokenUsage) -> list[bytes]:
    """Return *reply* as a server would send it."""
    parts: Sequence[Any]
    if isinstance(reply, str):
        parts = [ModelText(reply)]
    else:
        parts = [reply] if isinstance(reply, TranscriptPart) else list(reply)
    deltas: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        match part:
            case ModelText():
                pieces = part.text.split(" ")
                deltas += [{"content": piece} for piece in _spaced(pieces)]
            case ThinkingPart():
                deltas.append({"reasoning_content": part.text})
            case ToolUse():
                function = {"name": part.name, "arguments": compact(dict(part.args))}
                call = {"index": index, "id": part.id, "function": function}
                deltas.append({"tool_calls": [call]})
            case _:
                raise InvalidValueError(f"a model cannot say {part!r}")
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    written = usage.cache_write + usage.cache_write_1h
    counts = {
        "prompt_tokens": usage.input + usage.cache_read + written,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": written,
        },
        "completion_tokens": usage.output + usage.reasoning,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
    chunks.append({"choices": [{"index": 0, "finish_reason": "stop"}], "usage": counts})
    lines = [f"data: {compact(chunk)}\n\n".encode() for chunk in chunks]
    return [*lines, b"data: [DONE]\n\n"]


def _spaced(pieces: list[str]) -> list[str]:
    """Return *pieces* with the spaces between them."""
    return [piece + " " for piece in pieces[:-1]] + pieces[-1:]
