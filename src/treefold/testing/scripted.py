"""A model whose replies are written in the test.

Everything but the network is real: the session, its history and checks, the decoder, the retries.
"""

import asyncio
import json
import re
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
from treefold.models.json_text import to_json
from treefold.models.openai.dialect import OpenAIDialect, message_parts
from treefold.models.profiles import Profile
from treefold.models.request_error import RequestError
from treefold.models.retry import Retry, Timers
from treefold.models.wire_model import WireModel

_WORD: Final = re.compile("[^ ]* |[^ ]+")  # with the space that follows it
# The thinking tags of requests are those of most models.
_PROFILE: Final = Profile()

# A reply that never arrives; compared by identity.
HANGS: Final = TimeoutError("this reply never arrives")


@dataclass(frozen=True, slots=True)
class ScriptedFailure:
    """A reply that fails with an HTTP status, or with a broken connection if *status* is None.

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
    """One request: the system prompt, the functions offered and the whole conversation.

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
    """Returns scripted replies one by one, and records every request in ``requests``.

    A reply is a text, a part or a list of parts (ModelText, ThinkingPart, ToolUse), a
    ScriptedFailure, ``HANGS`` for one that never arrives, or a function that takes the
    ScriptedRequest and returns one of these. A function in the last position answers all further
    requests. A failure is final unless *retry* sets delays for further attempts. With a
    *context_window*, agents that compact their conversations do so.

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
        context_window: int | None = None,
    ) -> None:
        # Text is passed on as it is: neither repeated text nor thinking tags are looked for.
        think_tags = ("\0<", "\0>")
        profile = Profile(cumulative=False, think_tags=think_tags, context_window=context_window)
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
        is_last = len(self._script) == 1
        reply = self._script[0] if is_last and callable(self._script[0]) else self._script.popleft()
        return reply(request) if callable(reply) else reply


def _unknown_price(usage: TokenUsage) -> None:
    """Return None: a scripted model has no price unless the test sets one."""


class ScriptedEndpoint:
    """Takes the place of the server in one session."""

    address = "the script"
    key_name = ""

    def __init__(self, reply: Callable[[ScriptedRequest], Reply], usage: TokenUsage) -> None:
        self._reply = reply
        self._usage = usage
        self._reader = _RequestReader()

    def scrub(self, error: RequestError) -> RequestError:
        return error

    async def open(self, body: bytes) -> "ScriptedStream | SilentStream":
        reply = self._reply(self._reader.read(body))
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
        await asyncio.sleep(0)  # suspend, as reading from a socket does
        return self._chunks.popleft() if self._chunks else b""

    async def close(self) -> None:
        self._chunks.clear()


class SilentStream:
    """A reply whose first byte never arrives."""

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def close(self) -> None:
        """Do nothing: there is no connection to release."""


class _RequestReader:
    """Decodes the requests of one session, each message once.

    A request repeats the whole conversation, so that decoding each one from its beginning would
    make a session quadratic in its length.
    """

    def __init__(self) -> None:
        self._decoded: bytes | None = None  # the previous body, without the "]}" that ends it
        self._system = ""
        self._functions: tuple[str, ...] = ()
        self._parts: list[TranscriptPart] = []

    def read(self, body: bytes) -> ScriptedRequest:
        """Return the request that *body* holds."""
        # The messages are the last field of a body, and the history only grows: what follows the
        # previous body is either a comma and further messages or, in another attempt, nothing.
        if self._decoded is not None and body.startswith(self._decoded):
            messages = json.loads(b"[" + body[len(self._decoded) : -1].removeprefix(b","))
        else:
            fields = json.loads(body)
            messages = fields["messages"]
            self._system = ""
            self._functions = tuple(tool["function"]["name"] for tool in fields.get("tools", ()))
            self._parts = []
        for message in messages:
            if message["role"] == "system":
                self._system += message["content"]
            self._parts += message_parts(message, _PROFILE)
        self._decoded = body.removesuffix(b"]}")
        return ScriptedRequest(self._system, self._functions, tuple(self._parts))


def _encoded(reply: Any, usage: TokenUsage) -> list[bytes]:
    """Return *reply* as the chunks that a server would stream."""
    parts: Sequence[Any]
    if isinstance(reply, str):
        parts = [ModelText(reply)]
    else:
        parts = [reply] if isinstance(reply, TranscriptPart) else list(reply)
    deltas: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        match part:
            case ModelText():
                deltas += [{"content": piece} for piece in _WORD.findall(part.text)]
            case ThinkingPart():
                deltas.append({"reasoning_content": part.text})
            case ToolUse():
                function = {"name": part.name, "arguments": to_json(dict(part.args))}
                call = {"index": index, "id": part.id, "function": function}
                deltas.append({"tool_calls": [call]})
            case _:
                raise InvalidValueError(
                    "a scripted reply consists of ModelText, ThinkingPart and ToolUse, got"
                    f" {part!r}"
                )
    chunks = [_event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
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
    last = _event({"choices": [{"index": 0, "finish_reason": "stop"}], "usage": counts})
    return [*chunks, last + b"data: [DONE]\n\n"]


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {to_json(data)}\n\n".encode()
