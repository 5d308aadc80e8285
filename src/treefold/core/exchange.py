"""What one request added to a conversation, in the provider's own format."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Self

import msgspec

from treefold.core.errors import InvalidValueError
from treefold.core.fact import HIDDEN, Fact, convert
from treefold.core.usage import TokenUsage

# The dialect of messages in the form of ``core.messages``, which every model can continue.
PLAIN: Final = "plain"


class Finish(StrEnum):
    """Why a model stopped, and so what has to be sent next.

    Example:
        >>> from treefold.models import Finish
        >>> Finish("tool_use") is Finish.TOOL_USE
        True
    """

    ANSWERED = "answered"  # a text of the user
    TOOL_USE = "tool_use"  # the results of all calls
    MAX_TOKENS = "max_tokens"  # cut off: complete parts are kept, and calls need their results
    PAUSED = "paused"  # nothing: the model continues the response


class Exchange(Fact, frozen=True, kw_only=True):
    """The messages sent and received by one request, each as its JSON text on the wire.

    An exchange of the dialect ``"plain"`` was never sent: it holds messages in a common form, and
    any model can continue it. A session is the list of its exchanges: they are saved one by one,
    and the session is restored from them.

    Example:
        >>> from treefold import TokenUsage
        >>> from treefold.models import Exchange, Finish
        >>> exchange = Exchange(
        ...     dialect="openai-chat",
        ...     sent=('{"role":"user","content":"Hi"}',),
        ...     received=('{"role":"assistant","content":"Hello"}',),
        ...     finish=Finish.ANSWERED,
        ...     usage=TokenUsage(input=8, output=1),
        ... )
        >>> Exchange.from_dict(exchange.to_dict()) == exchange
        True
    """

    dialect: Annotated[str, HIDDEN]  # the protocol that the messages are in
    sent: Annotated[tuple[str, ...], HIDDEN]
    received: Annotated[tuple[str, ...], HIDDEN]
    finish: Finish
    usage: Annotated[TokenUsage, HIDDEN]  # the event that has the exchange has it, too
    response_id: str = ""  # as the provider identifies the response, if it does
    response_model: str = ""  # the model that wrote it, as the provider names it
    # The answer was requested by a response schema: the model was offered no functions.
    by_schema: Annotated[bool, HIDDEN] = False

    def to_dict(self) -> dict[str, Any]:
        """Return the exchange as JSON data."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the exchange of which *data* is the ``to_dict()``.

        Raises:
            InvalidValueError: *data* is not a saved exchange.
        """
        try:
            return convert(dict(data), cls)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"not a saved exchange: {error}") from None


class LazyExchange:
    """Stands for an exchange that is read when a field of it is first accessed; most never are.

    Args:
        read: returns the exchange in a text.
        text: which that is.
    """

    __slots__ = ("_exchange", "_read", "_text")

    def __init__(self, read: Callable[[str], Exchange], text: str) -> None:
        self._read = read
        self._text = text

    # Called for what it does not have itself.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._found(), name)

    @property
    def __class__(self) -> type[Exchange]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Exchange  # for isinstance

    def _found(self) -> Exchange:
        try:
            return object.__getattribute__(self, "_exchange")
        except AttributeError:
            self._exchange = self._read(self._text)
            return self._exchange

    def __eq__(self, other: object) -> bool:
        return self._found() == (other._found() if type(other) is LazyExchange else other)

    def __hash__(self) -> int:
        return hash(self._found())

    def __repr__(self) -> str:
        return repr(self._found())
