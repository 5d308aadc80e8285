"""Views as plain JSON data: the one place for the shapes that other programs read.

``--json`` prints them, the web server sends them, and an exported page embeds them. Times are
seconds since the epoch, money is dollars as text. Single-line values are escaped as in
``views.text``; longer texts are unchanged, and must be escaped where they are displayed.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, get_args

from treefold.core import json_form
from treefold.core.frames import INTERRUPTED, Frame
from treefold.core.json_form import json_fields
from treefold.core.json_values import as_data, encodable
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.store import TreeRow
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.core.truncation import truncate
from treefold.core.usage import TokenUsage
from treefold.core.views import NodeView
from treefold.views.difference import pairs_of
from treefold.views.flame import By, flame_of
from treefold.views.fork_plan import ForkPlan
from treefold.views.liveness import state_of
from treefold.views.text import printable, short
from treefold.views.timing import KINDS, Kind, Span, TimeSpent, Timing, Totals, timing_of, totals_of
from treefold.views.words import arguments_in_words, in_words

LIMIT: Final = 20_000  # characters of a text, unless all of it is requested

_LINE: Final = 160  # characters
_NAME: Final = 40
_ARGUMENT: Final = 60


def to_json(data: Any) -> str:
    """Return *data* as JSON on one line, in ASCII: no character can end a line or be unpaired."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


# Calls


def row(view: NodeView, parent: int | None, *, tied: bool = False) -> dict[str, Any]:
    """Return one call as a row of a tree; *tied* if it shares its number with a sibling."""
    failure = view.exception
    return {
        "id": view.id,
        "parent": parent,
        "path": view.path,
        "fn": _line(view.fn),
        "agent": view.is_agent,
        "state": state_of(view),
        "sequence": view.sequence,
        "tied": tied,
        "args": arguments(view.inputs),
        "result": _result(view),
        "error": None if failure is None else _line(str(failure)),
        "status": _line(view.status),
        "model": None if view.model is None else _line(view.model),
        "started": _seconds(view.started_at),
        "ended": _seconds(view.ended_at or view.interrupted_at),
        "tokens": view.usage.total,
        "total_tokens": view.total_usage.total,
        "cost": money(view.cost),
        "total_cost": money(view.total_cost),
        "questions": [question.id for question in view.questions],
        "notices": len(view.notices),
        "seq": view.update_seqnum,
    }


def rows(view: NodeView, *, after: int = 0) -> list[dict[str, Any]]:
    """Return the call and all calls below it, callers first, in the order of calls.

    With *after*, only rows with a higher seq: those that a client with version *after* lacks.
    """
    found = _walk(view, after)
    return [row(one, parent, tied=tied) | {"seq": seq} for one, parent, tied, seq in found]


def _walk(top: NodeView, after: int = 0) -> Iterator[tuple[NodeView, int | None, bool, int]]:
    """Yield each call, the id of its caller, whether it is tied with a sibling, and its seq.

    A row changes without its call when a sibling is tied with it, so the first of several tied
    calls has the seq of the second, if that is higher. Below a call that has not changed since
    *after*, no call has.
    """
    stack: list[tuple[NodeView, int | None, bool, int]] = [(top, None, False, top.update_seqnum)]
    while stack:
        found = stack.pop()
        yield found
        view = found[0]
        groups: dict[int, list[NodeView]] = {}
        for child in view.children:
            groups.setdefault(child.sequence, []).append(child)
        for child in reversed(view.children):
            group = groups[child.sequence]
            seq = child.update_seqnum
            if child is group[0] and len(group) > 1:
                seq = max(seq, group[1].update_seqnum)
            if seq > after:
                stack.append((child, view.id, len(group) > 1, seq))


def detail(
    view: NodeView, parent: int | None = None, *, tied: bool = False, limit: int | None = LIMIT
) -> dict[str, Any]:
    """Return everything known about one call, texts cut to *limit* unless that is None."""
    failure = view.exception
    return row(view, parent, tied=tied) | {
        "inputs": {encodable(name): as_data(value, limit) for name, value in view.inputs.items()},
        "outputs": as_data(view.outputs, limit),
        "values": as_data(list(view.values), limit),
        "exception": None if failure is None else json_fields(failure, limit),
        "partial": encodable(view.partial),
        "partial_output": as_data(view.partial_output, limit),
        "usage": usage(view.usage),
        "total_usage": usage(view.total_usage),
        "held_back": encodable(view.held_back[:limit]),
        "notices": [encodable(notice[:limit]) for notice in view.notices],
        "questions": [question(one) for one in view.questions],
        "transcript": transcript(view, limit=limit),
    }


def details(view: NodeView, *, limit: int | None = LIMIT) -> dict[int, dict[str, Any]]:
    """Return everything known about a call and each call below it, by id."""
    return {
        one.id: detail(one, parent, tied=tied, limit=limit) | {"seq": seq}
        for one, parent, tied, seq in _walk(view)
    }


def frame(call: Frame) -> dict[str, Any]:
    """Return one call of a stack, with the same keys as a row."""
    return {
        "id": call.node_id,
        "path": call.path,
        "fn": printable(truncate(call.function, _LINE)),
        "agent": call.kind == "agent",
        "state": call.state,
        "args": _line(call.arguments),
        "model": None if call.model is None else _line(call.model),
        "responses": call.responses,
        "parts": call.parts,
        "total_tokens": call.usage.total,
        "total_cost": money(call.cost),
    }


def arguments(inputs: Mapping[str, Any]) -> str:
    """Return *inputs* on one line."""
    shown = (
        f"{printable(truncate(name, _NAME))}={short(v, _ARGUMENT)}" for name, v in inputs.items()
    )
    return truncate(", ".join(shown), _LINE)


def usage(spent: TokenUsage) -> dict[str, int]:
    """Return token counts by kind."""
    return {
        "cache_read": spent.cache_read,
        "cache_write": spent.cache_write + spent.cache_write_1h,
        "input": spent.input,
        "reasoning": spent.reasoning,
        "output": spent.output,
        "total": spent.total,
    }


def question(asked: Question) -> dict[str, Any]:
    """Return a question to a person."""
    return json_fields(asked, None)


# Conversations


def transcript(view: NodeView, *, limit: int | None = LIMIT) -> list[dict[str, Any]]:
    """Return the conversation of a call with its model, each tool call with its node and path.

    The first part is the system prompt, if there is one.
    """
    parts: list[dict[str, Any]] = []
    if view.system:
        text = encodable(view.system[:limit])
        parts.append({"kind": "system", "text": text, "length": len(view.system)})
    for part, call in zip(view.transcript, _tool_calls(view), strict=True):
        parts.append(_part(part, call, limit))
    return parts


def _tool_calls(view: NodeView) -> list[NodeView | None]:
    """Return for each part of the transcript the tool call that it starts or ends.

    A provider may reuse an id, and a call that failed may have been made again: the last use of an
    id belongs to the last of its calls.
    """
    calls: defaultdict[tuple[str | None, str], deque[NodeView]] = defaultdict(deque)
    for child in view.children:
        calls[child.tool_use_id, child.fn].append(child)
    uses_left = Counter((one.id, one.name) for one in view.transcript if isinstance(one, ToolUse))
    awaiting_result: defaultdict[str, deque[NodeView | None]] = defaultdict(deque)
    found: list[NodeView | None] = []
    for part in view.transcript:
        call: NodeView | None = None
        if isinstance(part, ToolUse):
            key = (part.id, part.name)
            uses_left[key] -= 1
            if part.fault is None and calls[key]:
                call = calls[key].popleft() if uses_left[key] else calls[key].pop()
            awaiting_result[part.id].append(call)
        elif isinstance(part, ToolResult) and awaiting_result[part.tool_use_id]:
            call = awaiting_result[part.tool_use_id].popleft()
        found.append(call)
    return found


def part_text(view: NodeView, index: int) -> str:
    """Return the whole text of one part of the transcript.

    Raises:
        IndexError: there is no such part.
    """
    if index < 0:
        raise IndexError(index)
    if view.system and index == 0:
        return encodable(view.system)
    return encodable(_text_of(view.transcript[index - bool(view.system)]))


def _part(part: TranscriptPart, call: NodeView | None, limit: int | None) -> dict[str, Any]:
    text = _text_of(part)
    shown = {"text": encodable(text[:limit]), "length": len(text)}
    made = {"node": None if call is None else call.id, "path": None if call is None else call.path}
    match part:
        case UserText():
            return {"kind": "user", **shown}
        case ModelText():
            return {"kind": "text", **shown}
        case ThinkingPart():
            return {"kind": "thinking", **shown, "redacted": part.redacted}
        case ToolUse():
            names = {"id": encodable(part.id), "name": encodable(part.name)}
            args = as_data(dict(part.args), limit)
            fault = None if part.fault is None else encodable(part.fault[:limit])
            return {"kind": "call", **shown, **names, "args": args, **made, "fault": fault}
        case ToolResult():
            id, error = encodable(part.tool_use_id), part.is_error
            return {"kind": "result", **shown, "id": id, "error": error, **made}


def _text_of(part: TranscriptPart) -> str:
    match part:
        case UserText() | ModelText() | ThinkingPart():
            return part.text
        case ToolUse():
            if (written := part.written) is not None:
                return written
            return json.dumps(as_data(dict(part.args)), ensure_ascii=False)
        case ToolResult():
            return part.content


# Runs


def tree(
    row: TreeRow, questions: int, *, source: int | None = None, interrupted: bool = False
) -> dict[str, Any]:
    """Return a run as a row of the list of runs; *questions* is how many of its are open.

    *source* is the number of the run that it was forked from.
    """
    return {
        "id": row.id,
        "number": row.number,
        "key": _line(row.key),
        "function": _line(row.function),
        "state": INTERRUPTED if interrupted else row.state.value,
        "open": row.open,
        "parked": row.parked,
        "asleep_until": row.asleep_until,
        "source": row.source or None,
        "source_number": source,
        "started": row.started,
        "ended": (row.last or row.started) if interrupted else row.ended,
        "questions": questions,
    }


def summary(view: NodeView) -> dict[str, Any]:
    """Return what the list of runs shows of a run, with all calls of *view*, its top-level call."""
    models: dict[str, None] = {}  # in the order of their first calls
    calls = errors = 0
    stack = [view]
    while stack:
        one = stack.pop()
        calls += 1
        errors += one.state is NodeState.Error
        if one.model is not None:
            models[_line(one.model)] = None
        stack.extend(reversed(one.children))
    return {
        "input": arguments_in_words(view.inputs, _LINE),
        "models": list(models),
        "calls": calls,
        "errors": errors,
        "tokens": view.total_usage.total,
        "cost": money(view.total_cost),
    }


def run(
    view: NodeView,
    row: TreeRow,
    questions: int,
    journal: Mapping[str, Any],
    shared: Mapping[int, int] | None = None,
    *,
    source: int | None = None,
) -> dict[str, Any]:
    """Return everything known about a run, texts in full; *journal* describes its journal.

    *source* is the number of the run that it was forked from, and *shared* are the calls that it
    shares with that.
    """
    interrupted = view.interrupted_at is not None
    return {
        "journal": dict(journal),
        "trees": [tree(row, questions, source=source, interrupted=interrupted)],
        "rows": rows(view),
        "details": {str(id): one for id, one in details(view, limit=None).items()},
        "flame": {by: flame(view, by) for by in get_args(By)},
        "shared": {str(id): there for id, there in (shared or {}).items()},
        "summary": summary(view),
        "timing": timing(view),
    }


def flame(view: NodeView, by: By = "time", *, now: datetime | None = None) -> dict[str, Any]:
    """Return the flame graph of a call: where its time, tokens or money went."""
    found = flame_of(view, by, now=now)
    return {
        "by": by,
        "total": _amount(found.total, by),
        "complete": found.complete,
        "started": _seconds(view.started_at),
        "frames": [
            {
                "id": frame.view.id,
                "path": frame.view.path,
                "fn": _line(frame.view.fn),
                "state": state_of(frame.view),
                "agent": frame.view.is_agent,
                "depth": frame.depth,
                "start": frame.start,
                "width": frame.width,
                "own": _amount(frame.own, by),
                "value": _amount(frame.value, by),
            }
            for frame in found.frames
        ],
    }


def timing(view: NodeView, *, now: datetime | None = None) -> dict[str, Any]:
    """Return where the time of a run went: its spans, its critical path, and sums.

    The times of spans and steps are seconds since its start.
    """
    found = timing_of(view, now=now)
    return {
        "started": found.start,
        "spans": {id: _spans(spans, found) for id, spans in found.spans.items() if spans},
        "path": [
            [step.view.id, step.kind, *_since(found, step.start, step.end)] for step in found.path
        ],
        **totals(totals_of(view, found)),
    }


def totals(found: Totals) -> dict[str, Any]:
    """Return what runs took: their time by kind, and what functions and models took."""
    return {
        "runs": found.runs,
        "calls": found.calls,
        "seconds": round(found.seconds, 6),
        "split": _split(found.split),
        "functions": [_spent(one) for one in found.functions],
        "models": [_spent(one) for one in found.models],
    }


def _spans(spans: Sequence[Span], found: Timing) -> list[list[Any]]:
    return [[kind, *_since(found, start, end)] for kind, start, end in spans]


def _since(found: Timing, *times: float) -> list[float]:
    return [round(at - found.start, 6) for at in times]


def _split(seconds: Mapping[Kind, float]) -> dict[str, float]:
    return {kind: round(seconds[kind], 6) for kind in KINDS if kind != "calls"}


def _spent(one: TimeSpent) -> dict[str, Any]:
    return {
        "name": _line(one.name),
        "calls": one.calls,
        "requests": one.requests,
        "seconds": round(one.time, 6),
        "split": _split(one.seconds),
        "tokens": one.tokens,
        "cost": money(one.cost),
    }


def difference(a: NodeView, b: NodeView) -> dict[str, Any]:
    """Return two calls, and all calls below them, side by side."""
    of_a = {one["id"]: one for one in rows(a)}
    of_b = {one["id"]: one for one in rows(b)}
    pairs = list(pairs_of(a, b))
    return {
        "rows": [
            {
                "a": None if pair.a is None else of_a[pair.a.id],
                "b": None if pair.b is None else of_b[pair.b.id],
                "same": pair.same,
                "changed": list(pair.changed),
            }
            for pair in pairs
        ],
        "same": all(pair.same for pair in pairs),
    }


def fork_plan(plan: ForkPlan) -> dict[str, Any]:
    """Return what a fork would do again, by function, and what that took the last time."""
    return {
        "shared": plan.shared,
        "again": [
            {
                "function": _line(one.function),
                "model": None if one.model is None else _line(one.model),
                "calls": one.calls,
                "responses": one.responses,
                "tokens": one.usage.total,
                "cost": money(one.cost),
            }
            for one in plan.again
        ],
    }


# Amounts


def money(dollars: Decimal | None) -> str | None:
    """Return dollars as text; None if a price is unknown."""
    return None if dollars is None else json_form.money(dollars)


def _amount(value: Decimal, by: By) -> float | int | str | None:
    if by == "money":
        return money(value)
    return float(value) if by == "time" else int(value)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _result(view: NodeView) -> str | None:
    """Return the result of a call in words; None if it has none."""
    if view.state is not NodeState.Success or view.outputs is None:
        return None
    return in_words(view.outputs, _LINE)


def _line(text: str) -> str:
    return truncate(printable(text[: _LINE + 1]), _LINE)
