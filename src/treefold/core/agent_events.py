"""The events of a conversation between a call and a model.

Only ``ResponseCompleted`` adds to the conversation. What was streamed before it is for observers
only, and is discarded if the attempt fails.
"""

from decimal import Decimal

from treefold.core.events import Event, Failure, fact
from treefold.core.exchange import Exchange
from treefold.core.model_events import TextDelta, TextWasThinking, ThinkingDelta, ToolUseDelta
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


@fact
class ConversationOpened(Event):
    """The call opened a conversation with a model, or reopened its own."""

    model: str
    system: str
    functions: tuple[str, ...]
    caching: str
    transcript: tuple[TranscriptPart, ...] = ()  # the conversation of an earlier call
    goes_on: bool = False  # this call continues its own conversation


@fact
class LeaseAwaited(Event):
    """The call waits for a lease before it can send a request."""


@fact
class RequestSent(Event):
    """A request with *inputs* was sent to the model."""

    at: float
    inputs: tuple[TranscriptPart, ...]


@fact
class ResponseStreamed(Event):
    """Another part of the response arrived."""

    delta: TextDelta | ThinkingDelta | TextWasThinking | ToolUseDelta


@fact
class RequestRetried(Event):
    """The request failed and is sent again after *wait* seconds."""

    at: float
    attempt: int
    failure: Failure
    wait: float


@fact
class RequestFailed(Event):
    """The request failed for good, or was abandoned."""

    at: float
    failure: Failure
    usage: TokenUsage  # tokens that were used nevertheless
    cost: Decimal | None


@fact
class NoticeGiven(Event):
    """The person who runs the tree should read *text*."""

    text: str
    calls: tuple[int, ...] = ()  # indexes of child calls that were not made again


@fact
class HookDecided(Event):
    """A decision hook changed what the model is told; after a crash it is not asked again."""

    hook: str
    key: str  # the call that has another result, or the response after which the agent continues
    text: str


@fact
class ResponseCompleted(Event):
    """The response is complete; request and response are now part of the conversation."""

    at: float
    exchange: Exchange
    parts: tuple[TranscriptPart, ...]  # what the exchange added to the transcript
    usage: TokenUsage  # since the last response, failed attempts included
    cost: Decimal | None  # US dollars, if the price is known
