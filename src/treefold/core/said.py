"""``SaidMessage``: what a person said to an agent while it runs, and whether that has arrived."""

from enum import StrEnum

from treefold.core.errors import InvalidValueError
from treefold.core.fact import Fact


class When(StrEnum):
    """When a message is delivered to an agent: with its next request, or when it would end."""

    NEXT = "next"
    IDLE = "idle"


class Receipt(StrEnum):
    """What has become of a message.

    Example:
        >>> from treefold import Receipt
        >>> Receipt.TooLate.value
        'too late'
    """

    Posted = "posted"
    Delivered = "delivered"
    TooLate = "too late"


def checked_message(text: object, when: object) -> tuple[str, When]:
    """Return a message and when it is delivered.

    Raises:
        InvalidValueError: it is none.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidValueError(f"there is nothing to say: give a text, not {text!r}")
    try:
        return text, When(when)
    except ValueError:
        known = ", ".join(repr(one.value) for one in When)
        raise InvalidValueError(f"when={when!r}: give one of {known}") from None


class SaidMessage(Fact, frozen=True, kw_only=True):
    """A message for a running agent.

    Attributes:
        step: the number of the response to the request that had it; None: there is none yet.
        receipt: whether it has arrived.

    Example:
        >>> from treefold import SaidMessage
        >>> SaidMessage(id="a", text="Look at the roof, too.").receipt.value
        'posted'
    """

    id: str
    text: str
    when: When = When.NEXT
    at: float = 0.0
    step: int | None = None
    is_late: bool = False

    @property
    def receipt(self) -> Receipt:
        """Whether it has been delivered, or the agent has ended without it."""
        if self.step is not None:
            return Receipt.Delivered
        return Receipt.TooLate if self.is_late else Receipt.Posted
