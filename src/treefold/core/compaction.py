"""``Compaction``: when the older part of a conversation gives way to a summary of it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from treefold.core.errors import InvalidValueError
from treefold.core.transcript import TranscriptPart

Pin: TypeAlias = Collection[str] | Callable[[TranscriptPart], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Call tree: how an agent makes room when the context window of its model is nearly full.

    Older exchanges are left out of its requests, and a summary takes their place. What was said
    stays in the tree, and a fork before the summary continues without it.

    Args:
        at: the part of the window that a request may fill.
        keep: the part of it that the newest exchanges, which are sent as they are, may fill.
        model: writes the summary; by default the model of the agent.
        pin: what stays word for word: the names of functions whose results do, or a function that
            is called with each part of the transcript.
        focus: what the summary should pay attention to.

    Example:
        >>> from treefold import Compaction, agent
        >>> @agent(compaction=Compaction(at=0.7, focus="what was decided, and why"))
        ... def work(task: str) -> str:
        ...     return task
    """

    at: float = 0.8
    keep: float = 0.25
    model: Any = None
    pin: Pin = ()
    focus: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.keep < self.at <= 1:
            raise InvalidValueError(
                f"Compaction(at={self.at!r}, keep={self.keep!r}): both are parts of the context"
                " window, such as 0.8 and 0.25, and less is kept than filled"
            )
        if isinstance(self.pin, str):
            raise InvalidValueError(f"pin={self.pin!r}: give a list of names, or a function")


def compaction_of(owner: str, given: "Compaction | Literal['auto'] | None") -> Compaction | None:
    """Return the compaction that *owner* was given.

    Raises:
        InvalidValueError: it is none.
    """
    if given is None or isinstance(given, Compaction):
        return given
    if given == "auto":
        return Compaction()
    raise InvalidValueError(
        f"compaction={given!r} of {owner}: give 'auto', or Compaction(at=..., keep=...)"
    )
