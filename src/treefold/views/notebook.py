"""Show a tree in a notebook: as HTML that folds, without a script; also for rich, and as text.

Reads views only. Text of functions and models is escaped: it cannot become HTML, nor change the
direction of the text around it. Colours are readable on light and on dark backgrounds, and without
the style sheet, which some sites remove, the tree still folds.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from treefold.core.display import Displayed
from treefold.core.escaping import one_line, printable
from treefold.core.json_values import as_data
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.truncation import truncate
from treefold.core.views import NodeView
from treefold.runtime.calls.node import CallNode
from treefold.runtime.trees.run_log import answer_command
from treefold.views.folding import CallCounter, CallRow, MoreRow, fold
from treefold.views.liveness import state_of
from treefold.views.parallel import numbered
from treefold.views.text import SIGNS, elapsed, readable, render, short, sign_of

# Browsers do not nest elements deeper than about 500, and a document of many calls is slow.
_MOST_CALLS: Final = 200
_MOST_CALLS_LIVE: Final = 40
_LONGEST_VALUE: Final = 4000  # characters
_ONE_LINE: Final = 80  # characters of JSON that are not spread over several lines
_BRANCH: Final = 3  # characters that lead one level deeper in a row

_STYLE: Final = """
.treefold{font-size:13px;line-height:1.6;margin:2px 0}
.treefold .tf-call .tf-call,.treefold .tf-more{margin-left:1.3em}
.treefold .tf-line{display:flex;gap:.5em;list-style:none;white-space:nowrap}
.treefold .tf-line::-webkit-details-marker{display:none}
.treefold summary.tf-line{cursor:pointer}
.treefold summary.tf-line::before{content:"\\25B8";opacity:.6;width:.8em}
.treefold details[open]>summary.tf-line::before{content:"\\25BE"}
.treefold .tf-text{overflow:hidden;text-overflow:ellipsis;flex:1}
.treefold .tf-dim{opacity:.7}
.treefold .tf-state{font-weight:bold}
.treefold .tf-running{color:#0a84a8}
.treefold .tf-paused,.treefold .tf-question{color:#a87000}
.treefold .tf-success{color:#218a48}
.treefold .tf-error,.treefold .tf-interrupted{color:#d93a3a}
.treefold .tf-canceled{color:#a650b8}
.treefold .tf-body{margin:1px 0 3px 1.3em;display:grid;grid-template-columns:auto 1fr;gap:2px .8em}
.treefold .tf-body pre{margin:0;padding:0 6px;white-space:pre-wrap;overflow-wrap:anywhere;
max-height:12em;overflow:auto;color:inherit;background:rgba(128,128,128,.13);border-radius:3px}
.treefold .tf-question{border-left:3px solid;padding-left:6px;white-space:pre-wrap;
grid-column:1/-1;margin-left:1.3em}
.treefold .tf-body .tf-question{margin-left:0}
"""


def view_of(shown: Displayed) -> NodeView:
    """Return the view of a node, or *shown* itself if it is a view."""
    if isinstance(shown, NodeView):
        return shown
    assert isinstance(shown, CallNode)  # the only class of nodes
    return shown.tree.view(shown.id)


def html_of(shown: Displayed) -> str:
    """Return a node or a view as HTML."""
    journal = shown.tree.journal if isinstance(shown, CallNode) else None
    return to_html(view_of(shown), path=None if journal is None else journal.path)


def text_of(shown: Displayed) -> str:
    """Return a node or a view as text, at most 200 calls: a notebook keeps it beside the HTML."""
    return render(view_of(shown), most=_MOST_CALLS)


def segments_of(shown: Displayed, columns: int) -> Iterator[Any]:
    """Yield a node or a view as the segments of rich."""
    from rich.segment import Segment  # noqa: PLC0415 - only rich asks for it

    from treefold.views.styled import styled_lines  # noqa: PLC0415 - imports rich

    for line in styled_lines(view_of(shown), columns, _MOST_CALLS, datetime.now(UTC)):
        yield from line
        yield Segment.line()


def to_html(
    view: NodeView, *, live: bool = False, path: str | None = None, now: datetime | None = None
) -> str:
    """Return *view* and the calls below it as HTML, at most 200 calls.

    Calls that have not succeeded are unfolded. A *live* tree does not fold, because it is replaced
    all the time. *path* is the journal, for the commands that answer questions.
    """
    counter, now = CallCounter(), now or datetime.now(UTC)
    rows = fold(view, _MOST_CALLS_LIVE if live else _MOST_CALLS, counter)
    html: list[str] = []
    tag = "div" if live else "details"
    levels = 0  # how many elements are open
    for row in rows:
        depth = len(row.lead) // _BRANCH
        html.append(f"</{tag}>" * (levels - depth))
        levels = depth
        if isinstance(row, MoreRow):
            html.append(f'<div class="tf-more tf-dim">{_more(row)}</div>')
            continue
        levels += 1
        below = counter.count(row.view).calls - 1
        html.append(_call(row, below, now) if not live else _live_call(row, now, path))
        if not live:
            html.append(_body(row.view, path))
    html.append(f"</{tag}>" * levels)
    return f'<div class="treefold"><style>{_STYLE}</style>{"".join(html)}</div>'


def _call(row: CallRow, below: int, now: datetime) -> str:
    view = row.view
    is_open = not row.lead or view.questions or (below and view.state is not NodeState.Success)
    calls = f"+{below:,} call{'s' if below > 1 else ''}" if below else ""
    return (
        f'<details class="tf-call"{" open" if is_open else ""}><summary class="tf-line">'
        f"{_line(row, now, calls)}</summary>"
    )


def _live_call(row: CallRow, now: datetime, path: str | None) -> str:
    questions = "".join(_question(question, row.view.path, path) for question in row.view.questions)
    return f'<div class="tf-call"><div class="tf-line">{_line(row, now, "")}</div>{questions}'


def _line(row: CallRow, now: datetime, calls: str) -> str:
    view, state = row.view, state_of(row.view)
    number = numbered(view.path, row.place)
    # The reason of a failure matters more than the arguments.
    room = 60 if view.exception is None else 20
    given = [f"{printable(truncate(k, 40))}={short(v, room)}" for k, v in view.inputs.items()]
    args = ", ".join(given)
    meters = " · ".join(filter(None, [calls, *_spent(view), elapsed(view, now)]))
    return (
        f'<span class="tf-state tf-{escape(state)}" title="{escape(state)}">{sign_of(view)}</span>'
        f' <span class="tf-dim">{escape(number)}</span>'
        f' <span class="tf-text"><b>{escape(printable(truncate(view.fn, 40)))}</b>'
        f"<code>({escape(args)})</code>{_outcome(view)}</span>"
        f' <span class="tf-dim">{escape(meters)}</span>'
    )


def _outcome(view: NodeView) -> str:
    if view.exception is not None:
        return f' → <span class="tf-error">{escape(one_line(str(view.exception)))}</span>'
    if view.state is NodeState.Success:
        return "" if view.outputs is None else f" → <code>{escape(short(view.outputs))}</code>"
    if view.partial:
        return f" <i>{escape(one_line(view.partial[-100:]))}</i>"
    return f' <span class="tf-dim">… {escape(one_line(view.status))}</span>' if view.status else ""


def _more(row: MoreRow) -> str:
    return " ".join(f"{SIGNS[state]} {count:,}" for state, count in row.states.items()) + " more"


def _spent(view: NodeView) -> Iterable[str]:
    if used := view.total_usage.total:
        yield f"{used:,} tokens"
        yield "price unknown" if view.total_cost is None else f"${view.total_cost:.4f}"


def _body(view: NodeView, path: str | None) -> str:
    """Return all that is known about a call, below its line."""
    parts = [_question(question, view.path, path) for question in view.questions]
    parts += [_labelled("notice", notice) for notice in view.notices]
    if view.exception is not None:
        parts.append(_labelled("error", str(view.exception)))
    if view.model is not None:
        parts.append(_labelled("model", view.model))
    parts += [_labelled(name, value) for name, value in view.inputs.items()]
    if view.values:
        parts.append(_labelled("sent", list(view.values)))
    if view.partial:
        parts.append(_labelled("so far", view.partial))
    if view.outputs is not None:
        parts.append(_labelled("result", view.outputs))
    return f'<div class="tf-body">{"".join(parts)}</div>' if parts else ""


def _labelled(label: str, value: Any) -> str:
    if isinstance(value, str):
        text = truncate(value, _LONGEST_VALUE)
    else:
        data = as_data(value, _LONGEST_VALUE)
        text = json.dumps(data, ensure_ascii=False)
        if len(text) > _ONE_LINE:
            text = json.dumps(data, ensure_ascii=False, indent=2)
    name = escape(printable(truncate(label, 40)))
    return f'<span class="tf-dim">{name}</span><pre>{escape(readable(text))}</pre>'


def _question(question: Question, call: str, path: str | None) -> str:
    choices = f" [{' / '.join(question.choices)}]" if question.choices else ""
    text = truncate(f"? {question.text}{choices}", _LONGEST_VALUE)
    return (
        f'<div class="tf-question">{escape(readable(text))}<br>'
        f"<code>{escape(answer_command(question, call, path))}</code></div>"
    )
