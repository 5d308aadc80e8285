"""The events of a conversation between a call and a model.

Only ``ResponseCompleted`` adds to the conversation. What was streamed before it is for observers
only, and is discarded if the attempt fails.
"""

from decimal import Decimal
from typing import Annotated, Any, ClassVar

from treefold.core.epoch import FIRST, Epoch
from treefold.core.events import Event, Failure, Moment
from treefold.core.exchange import Exchange
from treefold.core.fact import HIDDEN, VERBATIM, Finite
from treefold.core.said import When
from treefold.core.transcript import TranscriptPart
from treefold.core.usage import TokenUsage


class ConversationOpened(Event, frozen=True):
    """The call opened a conversation with a model, or reopened its own.

    Example:
        >>> from treefold.events import ConversationOpened
        >>> ConversationOpened(2, "local", "Be brief.", ("add",), "none").functions
        ('add',)
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    model: str
    system: str
    functions: tuple[str, ...]
    caching: str
    transcript: tuple[TranscriptPart, ...] = ()  # the conversation of an earlier call
    goes_on: bool = False  # this call continues its own conversation
    address: str = ""  # of the model's server, if the model was given one
    epoch: Epoch = FIRST  # where requests begin
    # A hash of what precedes all messages: system prompt, functions, form of the answer.
    prefix: Annotated[str, VERBATIM, HIDDEN] = ""


class LeaseAwaited(Event, frozen=True):
    """The call waits for a lease before it can send a request.

    Example:
        >>> from treefold.events import LeaseAwaited
        >>> LeaseAwaited(2, 1767225600.0).node
        2
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    at: Moment


class RateAwaited(Event, frozen=True):
    """The call waits until its next request fits into a rate, for *seconds* or longer.

    Example:
        >>> from treefold.events import RateAwaited
        >>> RateAwaited(2, 1767225600.0, 1.5).seconds
        1.5
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    at: Moment
    seconds: Finite  # 0: others wait before it


class BudgetAwaited(Event, frozen=True):
    """The call waits for requests under way, for which the rest of a budget is reserved.

    Example:
        >>> from treefold.events import BudgetAwaited
        >>> BudgetAwaited(2, 1767225600.0, "the runtime").owner
        'the runtime'
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    at: Moment
    owner: str  # of the budget


class RequestSent(Event, frozen=True):
    """A request with *inputs* was sent to the model.

    Example:
        >>> from treefold.events import RequestSent
        >>> from treefold import UserText
        >>> RequestSent(2, 1767225600.0, (UserText("Hi"),)).to_json()["inputs"]
        [{'type': 'UserText', 'text': 'Hi'}]
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    at: Moment
    inputs: tuple[TranscriptPart, ...]


class ResponseStreamed(Event, frozen=True):
    """More of a response has arrived, which is not complete and may still be discarded.

    It is not recorded: a stream of events makes it from what has arrived when it is read, and gives
    it the number of the event before it. ``ResponseCompleted`` has the whole response.

    Attributes:
        start: how many characters of the text are known; what was known beyond them is replaced.
        text: the text that follows.
        partial_output: the typed result as far as it has arrived; None if nothing has.

    Example:
        >>> from treefold.events import ResponseStreamed
        >>> shown = "Hello wor"
        >>> event = ResponseStreamed(2, start=6, text="world")
        >>> shown[: event.start] + event.text
        'Hello world'
    """

    recorded: ClassVar = False

    start: int
    text: str
    partial_output: Any = None


class RequestRetried(Event, frozen=True):
    """The request failed and is sent again after *wait* seconds.

    Example:
        >>> from treefold.events import RequestRetried
        >>> from treefold.core.events import Failure
        >>> RequestRetried(2, 1767225600.0, 1, Failure("HTTP 529", "overloaded"), 5.0).wait
        5.0
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    at: Moment
    attempt: int
    failure: Failure
    wait: Finite


class RequestFailed(Event, frozen=True):
    """The request failed for good, or was abandoned.

    Example:
        >>> from treefold.events import RequestFailed
        >>> from treefold import TokenUsage
        >>> from treefold.core.events import Failure
        >>> failure = Failure("HTTP 401", "no key")
        >>> str(RequestFailed(2, 1767225600.0, failure, TokenUsage(), None).failure)
        'HTTP 401: no key'
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    at: Moment
    failure: Failure
    usage: TokenUsage  # tokens that were used nevertheless
    cost: Decimal | None


class NoticeGiven(Event, frozen=True):
    """The person who runs the tree should read *text*.

    Example:
        >>> from treefold.events import NoticeGiven
        >>> NoticeGiven(2, "the context is nearly full").text
        'the context is nearly full'
    """

    repeated: ClassVar = True
    inward: ClassVar = True

    text: str
    calls: tuple[int, ...] = ()  # indexes of child calls that were not made again
    # The call continues with this version of its function.
    version: Annotated[str, VERBATIM] = ""


class MessagePosted(Event, frozen=True):
    """A person said *text* to the agent; it is delivered with a later request.

    Example:
        >>> from treefold.events import MessagePosted
        >>> MessagePosted(2, 1767225600.0, "a", "Look at the roof, too.").when
        <When.NEXT: 'next'>
    """

    inward: ClassVar = True

    at: Moment
    id: str  # also in the request that has it (``UserText.message``)
    text: str
    when: When = When.NEXT


class HookDecided(Event, frozen=True):
    """A decision hook had the model told *text*; after a crash it is not asked again.

    Example:
        >>> from treefold.events import HookDecided
        >>> HookDecided(2, "stop", "3", "Run the tests, too.").hook
        'stop'
    """

    inward: ClassVar = True

    hook: str
    key: str  # the call that has another result, or the response after which the agent continues
    text: str


class ResponseCompleted(Event, frozen=True):
    """The response is complete; request and response are now part of the conversation.

    Example:
        >>> from treefold.events import ResponseCompleted
        >>> from treefold import ModelText, TokenUsage
        >>> from treefold.models import Exchange, Finish
        >>> usage = TokenUsage(input=8, output=1)
        >>> exchange = Exchange(
        ...     dialect="plain", sent=(), received=(), finish=Finish.ANSWERED, usage=usage
        ... )
        >>> parts = (ModelText("Hi"),)
        >>> event = ResponseCompleted(2, 1767225600.0, exchange, parts, usage, None, step=1)
        >>> event.to_json()["exchange"]["finish"]
        'answered'
    """

    inward: ClassVar = True

    at: Moment
    exchange: Exchange
    parts: tuple[TranscriptPart, ...]  # what the exchange added to the transcript
    usage: TokenUsage  # since the last response, failed attempts included
    cost: Decimal | None  # US dollars, if the price is known
    # Its number among the responses of the conversation: 1, 2, ... Keys of calls and positions of
    # forks are made from it, so it depends on what was said, never on what is sent.
    step: int
    first_chunk: Finite | None = None  # seconds from the request until the response began to arrive
