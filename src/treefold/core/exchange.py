"""What one request added to a conversation, in the provider's own format."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Self, cast

from treefold.core.errors import InvalidValueError
from treefold.core.json_form import HIDDEN
from treefold.core.lazy_dataclass import lazy_dataclass
from treefold.core.plain import required_key
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


@lazy_dataclass(frozen=True, kw_only=True)
class Exchange:
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

    dialect: str = field(metadata=HIDDEN)  # the protocol that the messages are in
    sent: tuple[str, ...] = field(metadata=HIDDEN)
    received: tuple[str, ...] = field(metadata=HIDDEN)
    finish: Finish
    usage: TokenUsage = field(metadata=HIDDEN)  # the event that has the exchange has it, too
    response_id: str = ""  # as the provider identifies the response, if it does
    response_model: str = ""  # the model that wrote it, as the provider names it
    # The answer was requested by a response schema: the model was offered no functions.
    by_schema: bool = field(default=False, metadata=HIDDEN)

    def to_dict(self) -> dict[str, Any]:
        """Return the exchange as JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the exchange of which *data* is the ``to_dict()``.

        Raises:
            InvalidValueError: *data* is not a saved exchange.
        """
        try:
            return cls(
                dialect=str(required_key(data, "dialect", cls)),
                sent=_texts(required_key(data, "sent", cls)),
                received=_texts(required_key(data, "received", cls)),
                finish=Finish(required_key(data, "finish", cls)),
                usage=TokenUsage(**required_key(data, "usage", cls)),
                response_id=str(data.get("response_id", "")),
                response_model=str(data.get("response_model", "")),
                by_schema=bool(data.get("by_schema")),
            )
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"not a saved exchange: {error}") from None


class LazyExchange(Exchange):
    """An exchange that is decoded when a field is first accessed; most never are.

    Args:
        read: returns the exchange.
    """

    __slots__ = ("_unread",)

    def __init__(self, read: Callable[[], Exchange]) -> None:
        object.__setattr__(self, "_unread", read)

    # Called while the fields are not set yet.
    def __getattr__(self, name: str) -> Any:
        for known, value in zip(_FIELDS, _values(self._unread()), strict=True):
            object.__setattr__(self, known, value)
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exchange) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return super().__hash__()


_FIELDS: Final = tuple(one.name for one in fields(Exchange))
_values: Final = attrgetter(*_FIELDS)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"messages must be a list, got {value!r}")
    items = cast("list[Any]", value)
    if not all(isinstance(item, str) for item in items):
        raise TypeError("a message must be JSON text")
    return tuple(items)
