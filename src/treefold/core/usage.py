"""The tokens that requests used, by kind."""

from decimal import Decimal
from typing import Any, ClassVar, Final

from treefold.core.fact import Fact
from treefold.core.json_form import json_form


class TokenUsage(Fact, frozen=True, kw_only=True):
    """Tokens by how they are billed; no token is counted twice, and usages can be added.

    Attributes:
        input: input that was neither read from nor written to a cache.
        cache_read: input read from a prompt cache.
        cache_write: input written to a prompt cache for minutes.
        cache_write_1h: input written to a prompt cache for an hour.
        reasoning: output for thinking, if the provider counts it separately.
        output: all other output.

    Example:
        >>> from treefold import TokenUsage
        >>> TokenUsage(input=10, output=5) + TokenUsage(input=1, reasoning=2)
        TokenUsage(input=11, cache_read=0, cache_write=0, cache_write_1h=0, reasoning=2, output=5)
        >>> sum([TokenUsage(input=1), TokenUsage(input=2)], TokenUsage()).total
        3
    """

    json_properties: ClassVar[tuple[str, ...]] = ("total",)

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    output: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input=self.input + other.input,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            reasoning=self.reasoning + other.reasoning,
            output=self.output + other.output,
        )

    def __sub__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            input=self.input - other.input,
            cache_read=self.cache_read - other.cache_read,
            cache_write=self.cache_write - other.cache_write,
            cache_write_1h=self.cache_write_1h - other.cache_write_1h,
            reasoning=self.reasoning - other.reasoning,
            output=self.output - other.output,
        )

    @property
    def total(self) -> int:
        """All tokens, input and output."""
        read = self.input + self.cache_read + self.cache_write + self.cache_write_1h
        return read + self.reasoning + self.output

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of tokens as JSON data."""
        return json_form(self, None)


NO_USAGE: Final = TokenUsage()
NO_COST: Final = Decimal(0)


def added(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """Return the sum of two costs; None if either is unknown."""
    return None if one is None or other is None else one + other
