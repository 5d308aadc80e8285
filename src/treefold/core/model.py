"""What every language model looks like to the rest of us.

A Model is a recipe and may be shared; a Session is one conversation with it. Who reads the events,
and what is done about the calls that the model asks for, is not this module's business.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from treefold.core.errors import InvalidValueError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.model_events import ModelEvent
from treefold.core.parameter import JsonSchema
from treefold.core.provider import Provider
from treefold.core.transcript import ToolResult, ToolUse, TranscriptPart, UserText
from treefold.core.usage import TokenUsage


class Caching(StrEnum):
    """For how long a provider is asked to keep the prompt.

    Example:
        >>> from treefold.models import Caching, ModelSettings
        >>> ModelSettings(caching=Caching.HOUR).caching.value
        '1h'
    """

    NONE = "none"
    MINUTES = "5m"
    HOUR = "1h"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is to answer; what is None is left to the model's profile.

    Attributes:
        max_tokens: the longest response.
        temperature: sampling, where the model takes it.
        top_p: sampling, where the model takes it.
        thinking: the budget for thinking in tokens; 0 for none.
        caching: how long a provider keeps the prompt, where it has to be told; for agents, None
            leaves it to ``caching_policy``.
        response_schema: the answer is JSON of this schema; only without functions.
        allow_lenient_tool_json: mend arguments of calls that were cut off, where that is safe.
        call_functions: False forbids the model to call any, though it knows them.
        extra: fields put into each request, object by object.

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
            raise InvalidValueError(f"max_tokens={self.max_tokens} leaves no room for a response")
        if self.thinking is not None and self.thinking < 0:
            raise InvalidValueError(f"thinking={self.thinking} is no budget; 0 is for none")
        if self.caching is None:
            return
        try:
            object.__setattr__(self, "caching", Caching(self.caching))
        except ValueError:
            known = ", ".join(caching.value for caching in Caching)
            raise InvalidValueError(f"caching={self.caching!r} is none of {known}") from None


class Session(ABC):
    """One conversation with a model.

    Its history ends with a complete response, always: a request that fails or is left adds nothing,
    and may be made again.

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
        """Say something, or give the results of all calls asked for, and stream the response.

        After a response that was PAUSED, send nothing and it goes on.

        Raises:
            UsageError: a call has no result, or a result no call.
            ModelProviderException: the provider failed, after such retries as help.
            ModelRefusedError: the provider or the model will not answer this.
        """

    @property
    @abstractmethod
    def exchanges(self) -> Sequence[Exchange]:
        """All that was sent and received, as it can be saved."""

    @property
    @abstractmethod
    def transcript(self) -> Sequence[TranscriptPart]:
        """All that was said, thought, asked for and answered."""

    @abstractmethod
    def parts(self, number: int) -> Sequence[TranscriptPart]:
        """Return what exchange *number*, from 0, added to the transcript."""

    @abstractmethod
    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        """Write down a response that was cut off: *inputs* were sent, and *text* came back.

        Raises:
            UsageError: a call has no result, or a result no call.
        """

    @property
    @abstractmethod
    def pending(self) -> Sequence[ToolUse]:
        """The calls that the model asked for and that have no result yet."""

    @property
    @abstractmethod
    def usage(self) -> TokenUsage:
        """All tokens so far, those of failed attempts included where the provider told."""


class Model(ABC):
    """Something that can hold conversations.

    Example:
        >>> from treefold.models import Model, find_model
        >>> model: Model = find_model("openai:qwen3@lmstudio")
        >>> model.name
        'openai:qwen3@http://localhost:1234/v1'
    """

    name: str
    provider: Provider

    def check(self, functions: Sequence[Function]) -> None:  # noqa: B027 - most take any
        """Raise DefinitionError if the provider does not take such functions."""

    @abstractmethod
    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        """Begin a conversation, or go on with one that was saved as *exchanges*.

        Raises:
            DefinitionError: the provider does not take such a function.
            UsageError: a package or a key is missing; the message says which.
        """
