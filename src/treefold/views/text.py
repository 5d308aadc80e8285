"""Render a tree as lines of plain text.

Text of functions and models is escaped: it cannot move the cursor or change colours.
"""

import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from treefold.core.escaping import printable as printable
from treefold.core.states import NodeState
from treefold.core.truncation import truncate, truncated_repr
from treefold.core.views import NodeView
from treefold.views.liveness import end_of
from treefold.views.parallel import LanePlace, numbered, places_in

SIGNS: Final = {
    NodeState.Waiting: "·",
    NodeState.Running: "●",
    NodeState.Paused: "‖",
    NodeState.Success: "✓",
    NodeState.Error: "✗",
    NodeState.Canceled: "⊘",
}

INTERRUPTED_SIGN: Final = "↯"

_MINUTES_FROM: Final = 100  # seconds
_LAYOUT: Final = "\n\t\u200c\u200d"  # with the joiners that some scripts and emoji need


def render(
    view: NodeView, *, width: int = 100, now: datetime | None = None, most: int | None = None
) -> str:
    """Return *view* and the calls below it, one line per call, none longer than *width*.

    Each line begins with the state and the path; ``∥2/4`` is the second of four calls that were
    requested in parallel. A running agent has its status. Tokens and cost include all calls below.
    *now* is the end of calls that are still running. Only the first *most* calls are shown.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> def add(ctx, a: int, b: int) -> int:
        ...     return a + b
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=add), {"a": 1, "b": 2})
        ...     _ = node.result()
        ...     print(render(runtime.get_view(node.id)))
        ✓ 1 add(a=1, b=2) → 3  ... s
    """
    now = now or datetime.now(UTC)
    lines = _lines(view, width, now)
    if most is None:
        return "\n".join(lines)
    shown = list(islice(lines, most))
    return "\n".join([*shown, *("… more calls are not shown" for _ in islice(lines, 1))])


def _lines(top: NodeView, width: int, now: datetime) -> Iterator[str]:
    stack: list[tuple[NodeView, str, str, LanePlace | None]] = [(top, "", "", None)]
    while stack:
        view, lead, below, place = stack.pop()
        time = _time(view, now)
        yield truncate(lead + _line(view, place), width - len(time)) + time
        places = places_in(view.children)
        last = view.children[-1] if view.children else None
        stack.extend(
            (
                child,
                below + ("└─ " if child is last else "├─ "),
                below + ("   " if child is last else "│  "),
                places.get(child.path),
            )
            for child in reversed(view.children)
        )


def _line(view: NodeView, place: LanePlace | None) -> str:
    room = 60 if view.exception is None else 20  # the reason of a failure matters more
    args = ", ".join(f"{_name(name)}={short(value, room)}" for name, value in view.inputs.items())
    line = f"{sign_of(view)} {numbered(view.path, place)} {_name(view.fn)}({args})"
    if view.state is NodeState.Success and view.outputs is not None:
        line += f" → {short(view.outputs)}"
    elif view.exception is not None:
        line += f" → {printable(str(view.exception))}"
    elif view.status and (view.model is not None or _is_stopped(view)):
        line += f" … {printable(view.status)}"
    return line


def sign_of(view: NodeView) -> str:
    """Return the sign of the state of a call."""
    return SIGNS[view.state] if view.interrupted_at is None else INTERRUPTED_SIGN


def _is_stopped(view: NodeView) -> bool:
    is_paused = view.state is NodeState.Paused
    return is_paused or view.interrupted_at is not None or bool(view.held_back)


def _time(view: NodeView, now: datetime) -> str:
    if view.started_at is None:
        return ""
    spent = f"  {view.total_usage.total:,} tokens" if view.total_usage.total else ""
    if spent and view.total_cost:
        spent += f" ${view.total_cost:.4f}"
    return f"{spent}  {elapsed(view, now)}"


def elapsed(view: NodeView, now: datetime) -> str:
    """Return how long *view* has been running, or ran; nothing if it has not started."""
    if view.started_at is None:
        return ""
    seconds = max(0.0, (end_of(view, now) - view.started_at).total_seconds())
    if seconds < _MINUTES_FROM:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} h" if hours else f"{minutes}:{seconds:02} min"


def readable(text: str) -> str:
    """Return *text* with newlines, tabs and spaces unchanged, and the rest as ``printable``."""
    if text.isprintable():
        return text
    return "".join(
        char if char in _LAYOUT or unicodedata.category(char) == "Zs" else printable(char)
        for char in text.replace("\r\n", "\n")
    )


def _name(name: str) -> str:
    return truncate(printable(name), 40)


def short(value: object, room: int = 60) -> str:
    """Return the repr of *value* on one line, cut to *room* characters before it is escaped."""
    return printable(truncated_repr(value, room))
