"""How often workers do what, and how long a drive waits that could not be run."""

from dataclasses import dataclass
from typing import Final

from treefold.core.errors import InvalidValueError

FIRST_DELAY: Final = 2.0  # seconds
LONGEST_DELAY: Final = 30.0  # seconds
_MOST_DOUBLINGS: Final = 30  # more would only overflow


@dataclass(frozen=True, slots=True)
class Delays:
    """Grow from *first* to *longest* seconds, twice as long each time."""

    first: float = FIRST_DELAY
    longest: float = LONGEST_DELAY

    def after(self, attempts: int) -> float:
        """Return the seconds to wait after that many attempts."""
        return min(self.first * 2 ** min(max(attempts, 1) - 1, _MOST_DOUBLINGS), self.longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryTiming:
    """What is done how often, in seconds.

    Attributes:
        beat: between two heartbeats.
        lease: after the last heartbeat, until a worker counts as dead.
        patience: that the server may take to answer.
        poll: between two looks into a queue, if nothing is announced.
    """

    beat: float
    lease: float
    patience: float
    poll: float = 1.0

    def __post_init__(self) -> None:
        if self.beat >= self.lease:
            raise InvalidValueError(
                "lease must be longer than beat, or every worker counts as dead; got "
                f"lease={self.lease:g} and beat={self.beat:g}"
            )
