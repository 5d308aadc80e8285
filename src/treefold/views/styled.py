"""Render a tree as styled lines that fit a terminal.

Takes a view and a size and returns rich segments; does not know what is on the screen. Text of
functions and models is escaped and never parsed as markup. Each state has a sign and a colour, and
either alone identifies it.
"""

from datetime import datetime
from decimal import Decimal
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from treefold.core.escaping import one_line, printable
from treefold.core.states import NodeState
from treefold.core.truncation import truncate
from treefold.core.views import NodeView
from treefold.views.folding import CallCounter, CallCounts, CallRow, MoreRow, Row, fold
from treefold.views.parallel import numbered
from treefold.views.text import INTERRUPTED_SIGN, SIGNS, elapsed, short, sign_of

Line = list[Segment]

_STYLES: Final = {
    NodeState.Waiting: Style(dim=True),
    NodeState.Running: Style(color="cyan", bold=True),
    NodeState.Paused: Style(color="yellow", bold=True),
    NodeState.Success: Style(color="green"),
    NodeState.Error: Style(color="red", bold=True),
    NodeState.Canceled: Style(color="magenta"),
}
_PLAIN: Final = Style()
_DIM: Final = Style(dim=True)
_NAME: Final = Style(bold=True)
_PARTIAL: Final = Style(color="cyan", italic=True)
_ERROR: Final = Style(color="red")
_NOTICE: Final = Style(color="yellow")
_QUESTION: Final = Style(color="yellow", bold=True, reverse=True)

_COLOR_SYSTEM: Final = ColorSystem.STANDARD  # the terminal's own colours, which suit its background
_QUESTION_SIGN: Final = "?"
_THOUSANDS_FROM: Final = 100_000  # tokens; larger counts are shown in thousands
_LONGEST_TEXT: Final = 400  # characters; no terminal is wider
_COLUMNS_FOR_TIME, _COLUMNS_FOR_TOKENS, _COLUMNS_FOR_MONEY = 20, 60, 75  # of the terminal
_COLUMNS_FOR_ARGS: Final = 30  # after the name of a call


def styled_lines(
    view: NodeView, columns: int, rows: int, now: datetime, counter: CallCounter | None = None
) -> list[Line]:
    """Return *view* and the calls below it, with a line of totals, as at most *rows* lines.

    No line is wider than *columns*. A *counter* that has counted an earlier view is faster.
    """
    counter = counter or CallCounter()
    total = counter.count(view)
    shown = fold(view, max(1, rows - 1), counter)
    meters = [_meters(row, columns, now) for row in shown]
    widths = [max(map(len, column)) for column in zip(*meters, strict=True)]
    lines: list[Line] = []
    for row, numbers in zip(shown, meters, strict=True):
        pairs = zip(numbers, widths, strict=True)
        right = "".join(f"  {text:>{width}}" for text, width in pairs if width)
        room = max(1, columns - len(right))
        left = _call(row, room) if isinstance(row, CallRow) else fit(_more(row), room)
        gap = " " * (room - line_width(left)) if right.strip() else ""
        lines.append([*left, Segment(gap), Segment(right.rstrip(), _DIM)])
    return [*lines, _totals(view, total, columns, now)]


def _call(row: CallRow, room: int) -> Line:
    view = row.view
    style = _STYLES[view.state] if view.interrupted_at is None else _ERROR
    sign = Segment(f"{sign_of(view)} ", style)
    if view.questions:
        sign = Segment(f"{_QUESTION_SIGN} ", _STYLES[NodeState.Paused])
    head = [
        Segment(_lead(row.lead, room), _DIM),
        sign,
        Segment(f"{numbered(view.path, row.place)} ", _DIM),
        Segment(truncate(printable(view.fn), 40), _NAME),
    ]
    more = [Segment(f" +{row.hidden:,}", _DIM)] if row.hidden else []
    left = max(0, room - line_width(head) - line_width(more))
    given = ", ".join(f"{printable(truncate(k, 40))}={short(v)}" for k, v in view.inputs.items())
    args = Segment(f"({given})", _DIM)
    least = min(cell_len(args.text), _least_columns(view, left))
    tail = fit(_tail(view, left - least), left - least)
    return fit([*head, *fit([args], left - line_width(tail)), *more, *tail], room)


def _least_columns(view: NodeView, left: int) -> int:
    """Return how many of the columns *left* are reserved for the arguments of a call."""
    # The question that a call asks may be one of its arguments.
    asked = [question.text for question in view.questions[:1]]
    if left < _COLUMNS_FOR_ARGS or any(value in asked for value in view.inputs.values()):
        return 0
    # A question and the reason of a failure matter more than the arguments.
    return left // 5 if view.questions or view.exception is not None else left * 2 // 5


def _tail(view: NodeView, room: int) -> Line:
    """Return the result of a call, or what it is doing now."""
    if view.questions:
        question = view.questions[0]
        choices = f" [{' / '.join(question.choices)}]" if question.choices else ""
        return [
            Segment(" "),
            Segment(f" {one_line(question.text)}{printable(choices)} ", _QUESTION),
        ]
    if view.exception is not None:
        return [Segment(f" → {one_line(str(view.exception))}", _ERROR)]
    if view.state is NodeState.Success:
        return [] if view.outputs is None else [Segment(f" → {short(view.outputs, _LONGEST_TEXT)}")]
    if view.partial:
        return [Segment(" "), Segment(_ending(view.partial, room - 1), _PARTIAL)]
    done = [Segment(f" … {one_line(view.status)}", _DIM)] if _shows_status(view) else []
    return done + [Segment(f"  ! {one_line(notice)}", _NOTICE) for notice in view.notices[-1:]]


def _shows_status(view: NodeView) -> bool:
    """Whether the status of a call adds anything to the calls below it."""
    if view.held_back:
        return True
    if not view.status or any(not child.state.final for child in view.children):
        return False
    return view.is_agent or view.state is NodeState.Paused


def _more(row: MoreRow) -> Line:
    counts = [Segment(f"{SIGNS[state]} {n:,} ", _STYLES[state]) for state, n in row.states.items()]
    return [Segment(row.lead, _DIM), *counts, Segment("more", _DIM)]


def _meters(row: Row, columns: int, now: datetime) -> list[str]:
    """Return the tokens, cost and time of a call and all calls below it, as far as they fit."""
    if isinstance(row, MoreRow) or columns < _COLUMNS_FOR_TIME:
        return ["", "", ""]
    view = row.view
    return [
        _tokens(view.total_usage.total) if columns >= _COLUMNS_FOR_TOKENS else "",
        _money(view.total_cost) if columns >= _COLUMNS_FOR_MONEY else "",
        elapsed(view, now),
    ]


def _totals(view: NodeView, total: CallCounts, columns: int, now: datetime) -> Line:
    """Return the line of totals; questions come first."""
    verb = "waits" if total.questions == 1 else "wait"
    states = [
        (NodeState.Success, total.done, f"of {total.calls:,} done"),
        (NodeState.Error, total.failed, "failed"),
        (NodeState.Canceled, total.canceled, "canceled"),
        (NodeState.Running, total.active, "running"),
        (NodeState.Paused, total.paused, "paused"),
        (NodeState.Waiting, total.unbegun, "not begun"),
    ]
    used, time = view.total_usage.total, elapsed(view, now)
    asks = f" {_QUESTION_SIGN} {total.questions:,} {verb} for you " if total.questions else ""
    counts = [(state, n, word) for state, n, word in states if n or state is NodeState.Success]
    stopped = f"{INTERRUPTED_SIGN} {total.interrupted:,} interrupted" if total.interrupted else ""
    calling = f"{total.calling:,} waiting for calls" if total.calling else ""
    for calls in (calling, ""):
        line = _spaced(
            Segment(asks, _QUESTION),
            *(Segment(f"{SIGNS[state]} {n:,} {word}", _STYLES[state]) for state, n, word in counts),
            Segment(stopped, _ERROR),
            Segment(calls, _DIM),
            *(Segment(text) for text in [f"{used:,} tokens", _price(view.total_cost)] if used),
            Segment(time),
        )
        if line_width(line) <= columns:
            return line
    line = _spaced(
        Segment(f" {_QUESTION_SIGN} {total.questions:,} " if asks else "", _QUESTION),
        Segment(
            f"{SIGNS[NodeState.Success]} {total.done:,}/{total.calls:,}", _STYLES[NodeState.Success]
        ),
        *(Segment(f"{SIGNS[state]} {n:,}", _STYLES[state]) for state, n, _ in counts[1:]),
        Segment(time),
        *(Segment(text) for text in [_tokens(used), _money(view.total_cost)]),
    )
    return fit(line, columns)


def _spaced(*parts: Segment) -> Line:
    line: Line = []
    for part in parts:
        if part.text:
            line += [Segment("  "), part] if line else [part]
    return line


def _tokens(number: int) -> str:
    if not number:
        return ""
    return f"{number // 1000:,}k tok" if number >= _THOUSANDS_FROM else f"{number:,} tok"


def _money(cost: Decimal | None) -> str:
    return f"${cost:.4f}" if cost else ""


def _price(cost: Decimal | None) -> str:
    return "price unknown" if cost is None else _money(cost)


def _lead(lead: str, room: int) -> str:
    """Return the branches that lead to a call; of a deep one, only the last branches."""
    longest = room // 2
    return lead if len(lead) <= longest else f"⋯ {lead[-longest:].lstrip('│ ')}"


def _ending(text: str, room: int) -> str:
    """Return the end of *text*, as much as fits into *room* columns."""
    end = printable(" ".join(text[-_LONGEST_TEXT:].split()))
    if len(text) <= _LONGEST_TEXT and cell_len(end) <= room:
        return end
    while end and cell_len(end) > room - 1:
        end = end[max(1, (cell_len(end) - room) // 2) :]
    return f"…{end}"


def fit(line: Line, room: int) -> Line:
    """Return *line*, cut to *room* columns if it is wider."""
    if line_width(line) <= room:
        return line
    left, kept = room - 1, Line()
    for segment in line:
        width = cell_len(segment.text)
        if width > left:
            text = set_cell_size(segment.text, max(0, left))
            return [*kept, Segment(f"{text}…", segment.style)] if room > 0 else []
        kept.append(segment)
        left -= width
    return kept


def line_width(line: Line) -> int:
    """Return the width of *line* in columns."""
    return sum(cell_len(segment.text) for segment in line)


def to_ansi(line: Line, *, coloured: bool) -> str:
    """Return *line* with ANSI escape sequences."""
    return "".join(
        (style if coloured else style.without_color).render(text, color_system=_COLOR_SYSTEM)
        for text, style in ((segment.text, segment.style or _PLAIN) for segment in line)
    )
