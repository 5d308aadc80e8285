"""What comes in while a model answers.

Deltas are for whoever watches. What counts is ``ResponseEnded``; a failed attempt makes void every
delta since the request.
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
    """The model said a little more.

    Example:
        >>> from treefold.models import TextDelta
        >>> TextDelta("Hel").text
        'Hel'
    """

    text: str


@fact
class ThinkingDelta:
    """The model thought a little more.

    Example:
        >>> from treefold.models import ThinkingDelta
        >>> ThinkingDelta("Hm").text
        'Hm'
    """

    text: str


@fact
class TextWasThinking:
    """All text since the request turned out to be thinking whose opening tag was left out.

    Example:
        >>> from treefold.models import TextWasThinking
        >>> TextWasThinking() == TextWasThinking()
        True
    """


@fact
class ToolUseDelta:
    """A little more of a call that the model is asking for; *id* and *name* as far as known.

    Example:
        >>> from treefold.models import ToolUseDelta
        >>> ToolUseDelta(0, "call_1", "add", '{"a":').name
        'add'
    """

    index: int  # which of the calls of this response
    id: str
    name: str
    arguments: str  # the next fragment of the JSON text


@fact
class PartCompleted:
    """One part of the response is whole.

    Example:
        >>> from treefold.models import PartCompleted
        >>> from treefold import ModelText
        >>> PartCompleted(ModelText("Hello")).part.text
        'Hello'
    """

    part: TranscriptPart


@fact
class Noticed:
    """Something that the person who runs this should know; the request goes on.

    Example:
        >>> from treefold.models import Noticed
        >>> Noticed("this server cannot call functions").text
        'this server cannot call functions'
    """

    text: str


@fact
class AttemptFailed:
    """The request failed and will be made again after *wait* seconds.

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
    usage: TokenUsage  # what the provider said it took all the same
    inner: BaseException | None = field(default=None, compare=False, repr=False)  # of the SDK


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
    reason: str  # the provider's own word for why it stopped


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
