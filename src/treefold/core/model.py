"""The interface of language models.

A Model is a configuration and may be shared; a Session is one conversation with it. This module
knows neither who consumes the events nor how the calls that a model requests are executed.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.model_events import ModelEvent
from treefold.core.parameter import JsonSchema
from treefold.core.provider import Provider
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import TokenUsage


class Caching(StrEnum):
    """How long a provider is asked to cache the prompt.

    Example:
        >>> from treefold.models import Caching, ModelSettings
        >>> ModelSettings(caching=Caching.HOUR).caching.value
        '1h'
    """

    NONE = "none"
    MINUTES = "5m"
    HOUR = "1h"


@dataclass(slots=True, frozen=True, kw_only=True)
class ModelSettings:
    """Settings for the responses of a model; the model's profile decides where a field is None.

    Attributes:
        max_tokens: the maximum length of a response.
        temperature: for sampling, if the model accepts it.
        top_p: for sampling, if the model accepts it.
        thinking: the thinking budget in tokens; 0 for no thinking.
        caching: how long the provider caches the prompt, if requests have to set it; for agents,
            None leaves it to ``caching_policy``.
        response_schema: the JSON schema of the answer; only without functions.
        allow_lenient_tool_json: repair arguments of calls that were cut off, where that is safe.
        call_functions: False forbids the model to call the functions that it is shown.
        extra: fields merged into each request; nested objects are merged as well.

    Example:
        >>> from treefold.models import ModelSettings
        >>> ModelSettings(max_tokens=1000, temperature=0).max_tokens
        1000
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    thinking: int | None = None
    caching: Caching | None = None
    response_schema: JsonSchema | None = None
    allow_lenient_tool_json: bool = False
    call_functions: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.thinking is not None and self.thinking < 0:
            raise InvalidValueError(
                f"thinking must be a number of tokens, or 0 for no thinking, got {self.thinking}"
            )
        if self.caching is None:
            return
        try:
            object.__setattr__(self, "caching", Caching(self.caching))
        except ValueError:
            known = ", ".join(caching.value for caching in Caching)
            raise InvalidValueError(
                f"caching must be one of {known}, got {self.caching!r}"
            ) from None


# Is awaited before each attempt to send a request, which may have to wait, or be forbidden. A
# runtime sets it for the time of a request.
before_attempt: Final[ContextVar[Callable[[], Awaitable[None]] | None]] = ContextVar(
    "before_attempt", default=None
)


class Session(ABC):
    """Models: one conversation with a model, in memory.

    It is no saved chat (SavedSession), and no bag of objects (SessionBag).

    Its history always ends with a complete response: a request that fails or is abandoned adds
    nothing, and may be repeated.

    Example:
        >>> import asyncio
        >>> from treefold import UserText
        >>> from treefold.testing import ScriptedModel
        >>> async def main():
        ...     session = ScriptedModel("Four.").open("You are brief.")
        ...     async for event in session.send(UserText("2 + 2?")):
        ...         print(event)
        >>> asyncio.run(main())
        ResponseStarted()
        TextDelta(text='Four.')
        PartCompleted(part=ModelText(text='Four.'))
        ResponseEnded(exchange=Exchange(...
    """

    @abstractmethod
    def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        """Send a text, or the results of all pending calls, and stream the response.

        After a response that was PAUSED, send nothing, and the model continues it.

        Raises:
            UsageError: a call has no result, or a result has no call.
            ModelProviderException: the provider failed, and retries did not help.
            ModelRefusedError: the provider or the model refused to answer.
        """

    @property
    @abstractmethod
    def exchanges(self) -> Sequence[Exchange]:
        """Everything sent and received, in a form that can be saved."""

    @property
    @abstractmethod
    def transcript(self) -> Sequence[TranscriptPart]:
        """The parts of the conversation: texts, thinking, calls and results."""

    @abstractmethod
    def parts(self, number: int) -> Sequence[TranscriptPart]:
        """Return the parts that exchange *number*, counted from 0, added to the transcript."""

    @abstractmethod
    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        """Add a response that was cut off: *inputs* were sent, and *text* was received.

        Raises:
            UsageError: a call has no result, or a result has no call.
        """

    @property
    @abstractmethod
    def pending(self) -> Sequence[ToolUse]:
        """The calls of the model that have no result yet."""

    @property
    @abstractmethod
    def usage(self) -> TokenUsage:
        """All tokens so far, including those that providers reported for failed attempts."""


class Model(ABC):
    """A language model: opens sessions, each of which is a conversation.

    Example:
        >>> from treefold.models import Model, find_model
        >>> model: Model = find_model("openai:qwen3@lmstudio")
        >>> model.name
        'openai:qwen3@http://localhost:1234/v1'
    """

    name: str
    provider: Provider

    @property
    def address(self) -> str:
        """The address of its server, without secrets; empty if it has none of its own."""
        return ""

    @property
    def calls_functions(self) -> bool:
        """Whether it can call functions, as far as known before the first request."""
        return True

    @property
    def context_window(self) -> int | None:
        """The most tokens that a request and its answer have together; None if it is unknown."""
        return None

    def without_retries(self) -> "Model":
        """Return the same model, for a request that another model makes if this one fails."""
        return self

    def longest_answer(self, settings: ModelSettings) -> int | None:
        """Return the most tokens that an answer has, thinking included; None if it is unknown.

        Budgets rely on it: so much is reserved while a request is under way.
        """
        return settings.max_tokens

    def check(self, functions: Sequence[Function]) -> None:  # noqa: B027 - most take any
        """Raise DefinitionError if the provider does not accept *functions*."""

    @abstractmethod
    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        """Open a conversation, or resume one that was saved as *exchanges*.

        Raises:
            DefinitionError: the provider does not accept a function.
            UsageError: a package or a key is missing; the message says which.
        """
