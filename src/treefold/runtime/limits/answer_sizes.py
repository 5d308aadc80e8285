"""How long the next answer of a model may be, by its recent ones."""

from collections import deque
from typing import Final

_RECENT: Final = 50  # answers of each model
# Tokens; longer than most answers are. With more than needed, requests wait for each other when a
# budget is almost used up; with less, they exceed it together.
_ASSUMED: Final = 8_192


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
        return max(_ASSUMED + thinking, *self._recent.get(model, (0,)))
