"""One line for each call of a stack: what an agent traceback and a debugger's stack show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

from treefold.core.usage import TokenUsage

_LONGEST: Final = 60  # characters of one argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call on the way from a top-level call to the one that matters.

    Example:
        >>> from treefold import Frame
        >>> print(Frame(function="fix", kind="code", node_id=1, path="1", arguments="root='/src'"))
        fix (code, node 1, path 1) root='/src'
    """

    function: str
    kind: Literal["agent", "code"]
    node_id: int
    path: str
    state: str = ""
    arguments: str = ""
    model: str | None = None
    responses: int = 0  # how many it has had
    parts: int = 0  # how long its transcript is
    usage: TokenUsage = field(default_factory=TokenUsage)  # with all calls below it
    cost: Decimal | None = None

    def __str__(self) -> str:
        line = f"{self.function} ({self.kind}, node {self.node_id}, path {self.path})"
        if self.arguments:
            line += f" {self.arguments}"
        told: list[str] = []
        if self.model is not None:
            told += [self.model, f"response {self.responses}", f"part {self.parts}"]
        if self.usage.total:
            told.append(f"{self.usage.total:,} tokens")
            told.append("price unknown" if self.cost is None else f"${self.cost:.4f}")
        return f"{line} | {', '.join(told)}" if told else line


def agent_traceback(frames: Iterable[Frame]) -> str:
    """Return *frames* one below the other, the call that matters last."""
    return "\n".join(["Agent traceback (most recent call last):", *(f"  {f}" for f in frames)])


def short_arguments(args: Mapping[str, Any]) -> str:
    """Return *args* on one line, long values cut."""
    return ", ".join(f"{name}={shortened(value)}" for name, value in args.items())


def shortened(value: Any, limit: int = _LONGEST) -> str:
    """Return the repr of *value*, cut if need be, whatever its class does."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - foreign code; what matters is the message it is to be part of
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
