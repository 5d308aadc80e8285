"""Events of a response while it is streamed.

Deltas are for display. ``ResponseEnded`` holds the result; a failed attempt invalidates every delta
since the request.
"""

from dataclasses import field

from treefold.core.events import Failure, fact
from treefold.core.exchange import Exchange
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


@fact
class ResponseStarted:
    """The server has accepted the request, and a response follows.

    Example:
        >>> from treefold.models import ResponseStarted
        >>> ResponseStarted() == ResponseStarted()
        True
    """


@fact
class TextDelta:
    """A fragment of the model's text.

    Example:
        >>> from treefold.models import TextDelta
        >>> TextDelta("Hel").text
        'Hel'
    """

    text: str


@fact
class ThinkingDelta:
    """A fragment of the model's thinking.

    Example:
        >>> from treefold.models import ThinkingDelta
        >>> ThinkingDelta("Hm").text
        'Hm'
    """

    text: str


@fact
class TextWasThinking:
    """All text since the request was thinking, whose opening tag the model left out.

    Example:
        >>> from treefold.models import TextWasThinking
        >>> TextWasThinking() == TextWasThinking()
        True
    """


@fact
class ToolUseDelta:
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


@fact
class PartCompleted:
    """One part of the response is complete.

    Example:
        >>> from treefold.models import PartCompleted
        >>> from treefold import ModelText
        >>> PartCompleted(ModelText("Hello")).part.text
        'Hello'
    """

    part: TranscriptPart


@fact
class Noticed:
    """A notice for the user; the request continues.

    Example:
        >>> from treefold.models import Noticed
        >>> Noticed("this server cannot call functions").text
        'this server cannot call functions'
    """

    text: str


@fact
class AttemptFailed:
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
    inner: BaseException | None = field(default=None, compare=False, repr=False)  # the SDK's


@fact
class ResponseEnded:
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
