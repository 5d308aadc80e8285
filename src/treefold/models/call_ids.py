"""What providers accept as ids of the calls that other providers' models have asked for."""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain, count
from typing import Final

_DIGITS: Final = 16  # of the hash that keeps shortened ids apart


@dataclass(frozen=True)
class CallIds:
    """The ids that one provider accepts.

    Attributes:
        invalid: the characters that it refuses; none if this is None.
        longest: how many characters an id may have; any number if this is None.
        once: whether an id may be used once in a conversation only. Other providers, and many local
            servers, use an id again in a later response.

    Example:
        >>> CallIds(longest=24).accepted("functions.add:0/functions.add:1", ())
        'functio-622dea44044323b4'
    """

    invalid: re.Pattern[str] | None = None
    longest: int | None = None
    once: bool = False

    def accepted(self, id: str, used: Collection[str]) -> str:
        """Return *id*, or in its place one that is accepted in a conversation with ids *used*."""
        if self.invalid is not None:
            id = self.invalid.sub("_", id) or "call"
        if self.longest is not None and len(id) > self.longest:
            digest = hashlib.sha256(id.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
            id = f"{id[: self.longest - _DIGITS - 1]}-{digest}"
        if not self.once:
            return id
        numbered = (f"{id}_{number}" for number in count(1))
        return next(one for one in chain([id], numbered) if one not in used)
