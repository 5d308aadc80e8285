"""``Rate``: how many requests and tokens may be sent in a minute."""

from dataclasses import dataclass
from typing import Any, Final

from treefold.core.errors import InvalidValueError

_BURST: Final = 0.1  # minutes: what was not used for so long may be used at once


@dataclass(slots=True, frozen=True, kw_only=True)
class Rate:
    """How much may be sent to a model in a minute; None means no limit.

    It is kept by a bucket that is filled all the time and holds a tenth of a minute's worth: in any
    one minute a tenth more may be sent.

    Attributes:
        rpm: requests per minute.
        tpm: input and output tokens per minute. A request is charged with its estimate before it is
            sent, and with the difference when it has ended.

    Example:
        >>> from treefold import Rate
        >>> Rate(rpm=50, tpm=40_000).tpm
        40000
    """

    rpm: float | None = None
    tpm: float | None = None

    def __post_init__(self) -> None:
        given: dict[str, Any] = {"rpm": self.rpm, "tpm": self.tpm}
        for name, value in given.items():
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise InvalidValueError(f"a rate of {name}={value!r} would let no request through")
        if self.rpm is None and self.tpm is None:
            raise InvalidValueError("a Rate bounds something: give rpm or tpm")

    @property
    def most_requests(self) -> float:
        """How many requests may be sent at once, after a pause."""
        return 0.0 if self.rpm is None else max(1.0, _BURST * self.rpm)

    @property
    def most_tokens(self) -> float:
        """How many tokens may be sent at once, after a pause; a larger request waits for them."""
        return 0.0 if self.tpm is None else max(1.0, _BURST * self.tpm)
