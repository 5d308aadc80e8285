"""``Frame``: one line of an agent traceback, or of a debugger's stack, for each call."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from msgspec import field

from treefold.core.address import address
from treefold.core.fact import Fact
from treefold.core.json_form import LIMIT, json_form
from treefold.core.truncation import truncated_repr
from treefold.core.usage import NO_USAGE, TokenUsage

INTERRUPTED: Final = "interrupted"  # the state of an open call whose process has ended


class Frame(Fact, frozen=True, kw_only=True):
    """One call on the path from a top-level call to the call of interest.

    Example:
        >>> from treefold import Frame
        >>> print(Frame(function="fix", kind="code", node_id=1, path="1", arguments="root='/src'"))
        fix (code, run 1) root='/src'
    """

    function: str
    kind: Literal["agent", "code"]
    node_id: int = field(name="node")
    path: str
    state: str = ""
    arguments: str = ""
    model: str | None = None
    responses: int = 0  # number of responses from its model
    parts: int = 0  # length of its transcript
    usage: TokenUsage = NO_USAGE  # including all calls below it
    cost: Decimal | None = None

    def to_json(self, *, limit: int | None = LIMIT) -> dict[str, Any]:
        """Return the call as JSON data; texts are cut after *limit* characters."""
        return json_form(self, limit)

    def __str__(self) -> str:
        line = f"{self.function} ({self.kind}, {address(self.path)})"
        if self.arguments:
            line += f" {self.arguments}"
        details: list[str] = [INTERRUPTED] if self.state == INTERRUPTED else []
        if self.model is not None:
            details += [self.model, f"response {self.responses}", f"part {self.parts}"]
        if self.usage.total:
            details.append(f"{self.usage.total:,} tokens")
            details.append("price unknown" if self.cost is None else f"${self.cost:.4f}")
        return f"{line} | {', '.join(details)}" if details else line


def agent_traceback(frames: Iterable[Frame]) -> str:
    """Return *frames* as lines below a heading, the call of interest last."""
    return "\n".join(["Agent traceback (most recent call last):", *(f"  {f}" for f in frames)])


def short_arguments(args: Mapping[str, Any]) -> str:
    """Return *args* on one line, with long values truncated."""
    return ", ".join(f"{name}={truncated_repr(value)}" for name, value in args.items())
