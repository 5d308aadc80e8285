"""What one request added to a conversation, in the provider's own words."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Self, cast

from treefold.core.errors import InvalidValueError
from treefold.core.plain import required_key
from treefold.core.usage import TokenUsage

PLAIN: Final = "plain"  # messages as in ``core.messages``: every model can go on with those


class Finish(StrEnum):
    """Why a model stopped, and so what comes next.

    Example:
        >>> from treefold.models import Finish
        >>> Finish("tool_use") is Finish.TOOL_USE
        True
    """

    ANSWERED = "answered"  # it is the user's turn
    TOOL_USE = "tool_use"  # it waits for the results of all calls it asked for
    MAX_TOKENS = "max_tokens"  # cut off; what is complete is kept, and calls want their results
    PAUSED = "paused"  # it has more to say: send nothing, and it goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was sent and what came back, each message as the JSON text that is on the wire.

    One whose dialect is ``"plain"`` was never on a wire: somebody wrote it down, in messages of the
    common form, and any model can go on with it. A session is the list of its exchanges: saved one
    by one as they are made, and restored from them.

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

    dialect: str  # the protocol that the messages are in
    sent: tuple[str, ...]
    received: tuple[str, ...]
    finish: Finish
    usage: TokenUsage

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what ``to_dict`` was called on.

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
            )
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"not a saved exchange: {error}") from None


class UnreadExchange(Exchange):
    """One that is read when somebody wants to know what is in it; most never are.

    Args:
        read: gives the exchange.
    """

    __slots__ = ("_unread",)

    def __init__(self, read: Callable[[], Exchange]) -> None:
        object.__setattr__(self, "_unread", read)

    def __getattr__(self, name: str) -> Any:  # of a field that nobody has set
        for field, value in zip(_FIELDS, _values(self._unread()), strict=True):
            object.__setattr__(self, field, value)
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exchange) and _values(self) == _values(other)

    __hash__ = Exchange.__hash__


_FIELDS: Final = tuple(field.name for field in fields(Exchange))
_values: Final = attrgetter(*_FIELDS)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is no list of messages")
    items = cast("list[Any]", value)
    if not all(isinstance(item, str) for item in items):
        raise TypeError("a message is JSON text")
    return tuple(items)
