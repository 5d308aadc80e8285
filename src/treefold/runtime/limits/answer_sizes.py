"""How long the next answer of a model may be, by its recent ones."""

from collections import deque
from typing import Final

_RECENT: Final = 50  # answers of each model
_FEW: Final = 5  # answers that say little about the next one
# Tokens. With more than needed, requests wait for each other when a budget is almost used up; with
# less, they exceed it together.
_UNKNOWN: Final = 32_000  # the longest answer of most models, unless they are asked for more
_USUAL: Final = 8_000  # longer than most answers are


class AnswerSizes:
    """What the recent requests to each model took beyond what was expected to be sent."""

    def __init__(self) -> None:
        self._recent: dict[str, deque[int]] = {}

    def note(self, model: str, tokens: int) -> None:
        """Note that a request to *model* took so many tokens more."""
        if (recent := self._recent.get(model)) is None:
            recent = self._recent.setdefault(model, deque(maxlen=_RECENT))
        recent.append(tokens)

    def expect(self, model: str, thinking: int) -> int:
        """Return the tokens to reserve for an answer of *model* that may think for so many."""
        recent = self._recent.get(model, ())
        assumed = _UNKNOWN if len(recent) < _FEW else _USUAL
        return max((assumed + thinking, *recent))
