"""Every fact about a conversation that a call has with a model.

Only ``ResponseCompleted`` counts: what has been streamed by then is for whoever watches, and void
if the attempt fails.
"""

from decimal import Decimal

from treefold.core.events import Event, Failure, fact
from treefold.core.exchange import Exchange
from treefold.core.model_events import TextDelta, TextWasThinking, ThinkingDelta, ToolUseDelta
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


@fact
class ConversationOpened(Event):
    """The call began to talk to a model, or goes on with what was said before."""

    model: str
    system: str
    functions: tuple[str, ...]
    caching: str
    transcript: tuple[TranscriptPart, ...] = ()  # what another call has said before
    goes_on: bool = False  # with what this call has said before


@fact
class LeaseAwaited(Event):
    """The call wants to make a request, and others have to end first."""


@fact
class RequestSent(Event):
    """The model was told something, and is to answer."""

    at: float
    inputs: tuple[TranscriptPart, ...]


@fact
class ResponseStreamed(Event):
    """A little more of the response came in."""

    delta: TextDelta | ThinkingDelta | TextWasThinking | ToolUseDelta


@fact
class RequestRetried(Event):
    """The request failed, and is made again after *wait* seconds."""

    at: float
    attempt: int
    failure: Failure
    wait: float


@fact
class RequestFailed(Event):
    """The request failed for good, or was left."""

    at: float
    failure: Failure
    usage: TokenUsage  # what it took all the same
    cost: Decimal | None


@fact
class NoticeGiven(Event):
    """Something that the person who runs this should know."""

    text: str
    calls: tuple[int, ...] = ()  # the indexes of the calls of this node that were not made again


@fact
class ResponseCompleted(Event):
    """The response is complete: what was sent and received is part of the conversation."""

    at: float
    exchange: Exchange
    parts: tuple[TranscriptPart, ...]  # what the exchange added to the transcript
    usage: TokenUsage  # since the last response, with what failed attempts took
    cost: Decimal | None  # US dollars, if the price is known
