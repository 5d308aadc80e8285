"""``RecordedModel``: a model that gives recorded responses, without any connection.

It does not compare requests with the recorded ones; its callbacks do.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any

from treefold.core.agent_events import ResponseCompleted
from treefold.core.errors import UsageError
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.model import Model, ModelSettings, Session
from treefold.core.model_events import (
    ModelEvent,
    PartCompleted,
    ResponseEnded,
    TextDelta,
    ThinkingDelta,
)
from treefold.core.provider import Provider
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.core.usage import TokenUsage
from treefold.models.reading import read_exchanges
from treefold.runtime.limits.model_names import ModelNames


class PlaceholderModel(Model):
    """Stands for a model while functions are checked; it cannot be used."""

    def __init__(self, name: str) -> None:
        self.name = name
        kind = name.partition(":")[0]
        self.provider = Provider(kind) if kind in list(Provider) else Provider.OpenAI

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        raise UsageError(f"{self.name} cannot be used in a replay")


class PlaceholderNames(ModelNames):
    """Has a placeholder for every model name."""

    def find(self, model_ref: Any) -> Model:
        return PlaceholderModel(
            "a model" if model_ref is None else str(getattr(model_ref, "name", model_ref))
        )


Sent = Callable[[str, Sequence[str], Sequence[TranscriptPart]], Awaitable[None]]
Answered = Callable[[], Awaitable[ResponseCompleted]]


class RecordedModel(PlaceholderModel):
    """The model of one call, and its responses so far.

    Args:
        sent: is called with each request: system prompt, names of the functions, inputs.
        answered: waits for the outcome of the request, and returns or raises it.
        window: the context window that was known when the conversation began.
    """

    def __init__(
        self, name: str, sent: Sent, answered: Answered, window: int | None = None
    ) -> None:
        super().__init__(name)
        self._window = window
        self.sent = sent
        self.answered = answered
        self.responses: list[ResponseCompleted] = []
        # Those of earlier calls, which a turn of a chat continues.
        self.before: Sequence[Exchange] = ()
        self.cost: Decimal | None = None  # of the last request

    @property
    def context_window(self) -> int | None:
        return self._window

    def price(self, usage: TokenUsage) -> Decimal | None:
        """Return the cost of the last request."""
        return self.cost

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        if not self.responses:
            self.before = exchanges
        return RecordedSession(self, system, [function.name for function in functions])


class RecordedSession(Session):
    """The conversation of one call; opened again, it is the same conversation."""

    def __init__(self, model: RecordedModel, system: str, functions: Sequence[str]) -> None:
        self._model = model
        self._system = system
        self._functions = functions
        self._parts_before = read_exchanges(model.before)

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        model = self._model
        await model.sent(self._system, self._functions, inputs)
        # Other members of an ensemble wait for the beginning of a response.
        yield TextDelta("")
        response = await model.answered()
        model.cost = response.cost
        model.responses.append(response)
        for part in response.parts:
            if isinstance(part, ModelText):
                yield TextDelta(part.text)
            if isinstance(part, ThinkingPart):
                yield ThinkingDelta(part.text)
            if not isinstance(part, UserText | ToolResult):
                yield PartCompleted(part)
        yield ResponseEnded(response.exchange, str(response.exchange.finish))

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return [*self._model.before, *(response.exchange for response in self._model.responses)]

    @property
    def transcript(self) -> Sequence[TranscriptPart]:
        return [part for parts in self._parts for part in parts]

    def parts(self, number: int) -> Sequence[TranscriptPart]:
        return self._parts[number]

    @property
    def _parts(self) -> list[Sequence[TranscriptPart]]:
        """The transcript parts of each exchange."""
        return [*self._parts_before, *(response.parts for response in self._model.responses)]

    def keep(self, text: str, *inputs: UserText | ToolResult) -> Exchange:
        raise UsageError("nothing can be added to the conversation of a replay")

    @property
    def pending(self) -> Sequence[ToolUse]:
        last = self._parts[-1] if self._parts else ()
        return [part for part in last if isinstance(part, ToolUse)]

    @property
    def usage(self) -> TokenUsage:
        return sum((response.usage for response in self._model.responses), TokenUsage())
