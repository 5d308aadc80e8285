"""What comes in while a model answers.

Deltas are for whoever watches. What counts is ``ResponseEnded``; a failed attempt makes void every
delta since the request.
"""

from ramify.core.events import Failure, fact
from ramify.core.exchange import Exchange
from ramify.core.transcript import TranscriptPart
from ramify.core.usage import TokenUsage


@fact
class TextDelta:
    """The model said a little more."""

    text: str


@fact
class ThinkingDelta:
    """The model thought a little more."""

    text: str


@fact
class TextWasThinking:
    """All text since the request turned out to be thinking whose opening tag was left out."""


@fact
class ToolUseDelta:
    """A little more of a call that the model is asking for; *id* and *name* as far as known."""

    index: int  # which of the calls of this response
    id: str
    name: str
    arguments: str  # the next fragment of the JSON text


@fact
class PartCompleted:
    """One part of the response is whole."""

    part: TranscriptPart


@fact
class Noticed:
    """Something that the person who runs this should know; the request goes on."""

    text: str


@fact
class AttemptFailed:
    """The request failed and will be made again after *wait* seconds."""

    attempt: int  # from 1
    failure: Failure
    wait: float
    usage: TokenUsage  # what the provider said it took all the same


@fact
class ResponseEnded:
    """The response is complete and part of the history."""

    exchange: Exchange
    reason: str  # the provider's own word for why it stopped


ModelEvent = (
    TextDelta
    | ThinkingDelta
    | TextWasThinking
    | ToolUseDelta
    | PartCompleted
    | Noticed
    | AttemptFailed
    | ResponseEnded
)
