"""Events of a response while it is streamed.

Deltas are for display. ``ResponseEnded`` holds the result; a failed attempt invalidates every delta
since the request.
"""

from typing import Annotated

from treefold.core.events import Failure
from treefold.core.exchange import Exchange
from treefold.core.fact import UNCOMPARED, Fact
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


class ResponseStarted(Fact, frozen=True):
    """The server has accepted the request, and a response follows.

    Example:
        >>> from treefold.models import ResponseStarted
        >>> ResponseStarted() == ResponseStarted()
        True
    """


class TextDelta(Fact, frozen=True):
    """A fragment of the model's text.

    Example:
        >>> from treefold.models import TextDelta
        >>> TextDelta("Hel").text
        'Hel'
    """

    text: str


class ThinkingDelta(Fact, frozen=True):
    """A fragment of the model's thinking.

    Example:
        >>> from treefold.models import ThinkingDelta
        >>> ThinkingDelta("Hm").text
        'Hm'
    """

    text: str


class TextWasThinking(Fact, frozen=True):
    """All text since the request was thinking, whose opening tag the model left out.

    Example:
        >>> from treefold.models import TextWasThinking
        >>> TextWasThinking() == TextWasThinking()
        True
    """


class ToolUseDelta(Fact, frozen=True):
    """A fragment of a call that the model requests; *id* and *name* as far as received.

    Example:
        >>> from treefold.models import ToolUseDelta
        >>> ToolUseDelta(0, "call_1", "add", '{"a":').name
        'add'
    """

    index: int  # of the call in this response
    id: str
    name: str
    arguments: str  # the next fragment of the JSON text


class PartCompleted(Fact, frozen=True):
    """One part of the response is complete.

    Example:
        >>> from treefold.models import PartCompleted
        >>> from treefold import ModelText
        >>> PartCompleted(ModelText("Hello")).part.text
        'Hello'
    """

    part: TranscriptPart


class Noticed(Fact, frozen=True):
    """A notice for the user; the request continues.

    Example:
        >>> from treefold.models import Noticed
        >>> Noticed("this server cannot call functions").text
        'this server cannot call functions'
    """

    text: str


class AttemptFailed(Fact, frozen=True):
    """The request failed and is retried after *wait* seconds.

    Example:
        >>> from treefold.models import AttemptFailed
        >>> from treefold import TokenUsage
        >>> from treefold.core.events import Failure
        >>> AttemptFailed(1, Failure("HTTP 529", "overloaded"), 5.0, TokenUsage()).wait
        5.0
    """

    attempt: int  # from 1
    failure: Failure
    wait: float
    usage: TokenUsage  # that the provider reported for the attempt
    inner: Annotated[BaseException | None, UNCOMPARED] = None  # the SDK's


class ResponseEnded(Fact, frozen=True):
    """The response is complete and part of the history.

    Example:
        >>> from treefold.models import ResponseEnded
        >>> from treefold import TokenUsage
        >>> from treefold.models import Exchange, Finish
        >>> spent = TokenUsage(input=8, output=1)
        >>> exchange = Exchange(
        ...     dialect="openai-chat", sent=(), received=(), finish=Finish.ANSWERED, usage=spent
        ... )
        >>> ResponseEnded(exchange, "stop").exchange.usage.total
        9
    """

    exchange: Exchange
    reason: str  # why the model stopped, as the provider puts it


ModelEvent = (
    ResponseStarted
    | TextDelta
    | ThinkingDelta
    | TextWasThinking
    | ToolUseDelta
    | PartCompleted
    | Noticed
    | AttemptFailed
    | ResponseEnded
)
