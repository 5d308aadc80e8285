"""Convert events to entries of a journal, and back.

Each kind of event is serialized by the types of its fields. Fields that the entry has itself, and
fields with their default value, are left out. The exchange is on a line of its own, because few
readers need it. Reading a journal creates instances of these classes only.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from treefold.core import agent_events, events
from treefold.core.budget import Budget
from treefold.core.events import (
    CallEnded,
    CallInherited,
    CallPaused,
    CallRequested,
    Event,
    TreeForked,
)
from treefold.core.exchange import Exchange, LazyExchange
from treefold.core.guards import Guards, HookGuard
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.store import Call, Entry
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from treefold.core.value_codec import ValueDecoder, ValueEncoder
from treefold.core.version_1 import Upgrade

VERSION: Final = 2  # of the bodies

_KINDS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind
    for kind in (
        events.CallRequested,
        events.CallStarted,
        events.CallAllowed,
        events.ValueSent,
        events.ArgumentsEdited,
        events.CallPaused,
        events.CallResumed,
        events.ProcessDied,
        events.TreeResumed,
        events.TreeHeldBack,
        events.TreeImported,
        events.ImportAccepted,
        events.GuardsAdded,
        events.GuardsLifted,
        events.QuestionAsked,
        events.QuestionEscalated,
        events.QuestionNotified,
        events.QuestionSettled,
        events.CallEnded,
        events.TreeForked,
        events.CallInherited,
        events.CallReopened,
        events.AgentEdited,
        agent_events.ConversationOpened,
        agent_events.LeaseAwaited,
        agent_events.RateAwaited,
        agent_events.BudgetAwaited,
        agent_events.RequestSent,
        agent_events.RequestRetried,
        agent_events.RequestFailed,
        agent_events.NoticeGiven,
        agent_events.HookDecided,
        agent_events.ResponseCompleted,
    )
}
_PARTS: Final[dict[str, type[TranscriptPart]]] = {
    part.__name__: part for part in (UserText, ModelText, ThinkingPart, ToolUse, ToolResult)
}
# The fields that the entry has itself, or that its position in the tree says; by class.
_IN_EVERY_ENTRY: Final = frozenset({"node", "number", "at"})
_IN_ENTRY: Final = {
    CallRequested: _IN_EVERY_ENTRY | {"parent", "index", "function", "key", "is_agent"},
    TreeForked: _IN_EVERY_ENTRY
    | {"tree_number", "function", "key", "is_agent", "source", "inherited"},
    CallInherited: _IN_EVERY_ENTRY | {"parent", "index", "function", "key", "is_agent"},
    Question: {"id", "node_id"},
}
# Names and hashes that are compared with new ones, which redaction might change; by class.
_NOT_REDACTED: Final[dict[type, set[str]]] = {
    CallRequested: {"version"},
    CallInherited: {"version"},
    TreeForked: {"version"},
    agent_events.NoticeGiven: {"version"},
    Question: {"key"},
    Budget: {"name"},
    Guards: {"allowed", "disallowed"},
    HookGuard: {"hook", "name", "matcher", "version"},
    events.GuardsLifted: {"names"},
}
# After these a question is pending, as it is in the event.
_ASKING: Final = (events.QuestionAsked, events.QuestionEscalated, events.QuestionNotified)
_CALLS: Final = {CallRequested, CallInherited, TreeForked}
_STATE_AFTER: Final[dict[type[Event], NodeState]] = {
    CallRequested: NodeState.Waiting,
    CallInherited: NodeState.Waiting,
    TreeForked: NodeState.Running,
    CallPaused: NodeState.Paused,
    events.CallStarted: NodeState.Running,
    events.CallResumed: NodeState.Running,
    events.CallReopened: NodeState.Running,
}
_YEAR_9999: Final = 253_370_764_800  # its first second; datetime ends with that year
_EMPTY_BODY: Final = f'{{"v":{VERSION}}}'  # when the entry has all fields of the event
# Types whose values are compared with the default; ``==`` of other types may run foreign code.
_COMPARABLE: Final = {int, float, bool, str, tuple}

Write = Callable[[ValueEncoder, Any], Any]
Read = Callable[[Any], Any]


def entry_of(event: Event, encoder: ValueEncoder, *, tree: int, number: int) -> Entry:
    """Return *event* as the entry with this *number* of its node.

    *encoder* has the long texts of the conversation that the event is part of.
    """
    kind = type(event)
    encoder.texts = {}
    body: dict[str, Any] = {"v": VERSION, **_written(encoder, event)}
    question: Question | None = None
    settled: str | None = None
    if isinstance(event, _ASKING):
        question = event.question.redacted(encoder.redacted)
        body["question"] |= {"k": event.question.id.partition("-")[2]}
    elif isinstance(event, events.QuestionSettled):
        settled = event.id
        body["id"] = event.id.partition("-")[2]
    state = event.state if isinstance(event, CallEnded) else _STATE_AFTER.get(kind)
    exchange = body.pop("exchange", None)
    text = _json(body)
    return Entry(
        tree=tree,
        node=event.node,
        number=number,
        kind=kind.__name__,
        body=text if exchange is None else f"{text}\n{_json(exchange)}",
        texts=encoder.texts,
        call=_call_of(event) if kind in _CALLS else None,
        state=state,
        question=question,
        settled=settled,
        at=getattr(event, "at", None),
    )


def events_of(
    entries: Iterable[Entry], text_of: Callable[[str], str], upgrade: Upgrade | None = None
) -> list[Event]:
    """Return the events of *entries*; *text_of* returns a long text by its hash.

    *upgrade* converts entries of an older version. A caller that reads a tree in several steps
    passes the same object each time.

    Raises:
        ValueError: an entry is damaged, or was written by a newer version.
    """
    decoder, upgrade = ValueDecoder(text_of), upgrade or Upgrade()
    return [_event_of(entry, decoder, upgrade) for entry in entries]


def _event_of(entry: Entry, decoder: ValueDecoder, upgrade: Upgrade) -> Event:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise ValueError(f"unknown kind of event {entry.kind!r}")
    try:
        text, _, exchange = entry.body.partition("\n")
        body: dict[str, Any] = decoder.read(text) if text != _EMPTY_BODY else {"v": VERSION}
        if (version := body.pop("v")) > VERSION:
            raise ValueError(f"a newer treefold has written it (version {version})")
        body["node"] = entry.node
        if entry.at is not None:
            if not 0 <= entry.at < _YEAR_9999:
                raise ValueError(f"{entry.at!r} is not a time")
            body["at"] = entry.at
        if entry.call is not None:
            body.update(_call_fields(entry.call, kind))
        elif kind in _ASKING:
            question = body["question"]
            question |= {"id": f"{entry.node}-{question.pop('k')}", "node_id": entry.node}
        elif kind is events.QuestionSettled:
            body["id"] = f"{entry.node}-{body['id']}"
        elif exchange:
            body["exchange"] = LazyExchange(partial(_read_exchange, exchange, decoder))
        event = _read(kind, body)
        return event if version == VERSION else upgrade(event)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a journal's {entry.kind}: {error!r}") from error


def _call_of(event: Event) -> Call:
    if isinstance(event, TreeForked):
        return Call(
            parent=0,
            key=event.key,
            index=event.tree_number,
            function=event.function,
            idles=event.is_agent,
            source=event.source,
            inherited=event.inherited,
        )
    assert isinstance(event, CallRequested | CallInherited)  # there are no others
    return Call(
        parent=event.parent or 0,
        key=event.key,
        index=event.index,
        function=event.function,
        idles=event.is_agent,
    )


def _call_fields(call: Call, kind: type[Event]) -> dict[str, Any]:
    """Return the fields of an event of this *kind* that are in the *call* of its entry."""
    if kind is TreeForked:
        found: dict[str, Any] = {"tree_number": call.index, "source": call.source}
        found["inherited"] = call.inherited
    else:
        found = {"parent": call.parent or None, "index": call.index}
    return found | {"key": call.key, "function": call.function, "is_agent": call.idles}


def _json(body: dict[str, Any]) -> str:
    try:
        return _encoder()(body, inf_nan_mode="constants").decode()
    except ValueError:
        # A lone surrogate has no UTF-8 form; the json module writes it as an escape.
        return json.dumps(body, separators=(",", ":"))


@cache
def _encoder() -> Callable[..., bytes]:
    from pydantic_core import to_json  # noqa: PLC0415 - slow, and readers do not need it

    return to_json


# How each class is serialized: computed once from its annotations.


@cache
def _plan(kind: type[Any]) -> list[tuple[str, Any, Write | None, Read | None]]:
    hints = get_type_hints(kind)
    left_out = _IN_ENTRY.get(kind, _IN_EVERY_ENTRY if issubclass(kind, Event) else set[str]())
    plan: list[tuple[str, Any, Write | None, Read | None]] = []
    for field in fields(kind):
        if field.name in left_out:
            continue
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name in _NOT_REDACTED.get(kind, ()):
            plan.append((field.name, default, None, _codec(hints[field.name])[1]))
        else:
            plan.append((field.name, default, *_codec(hints[field.name])))
    # The exchange comes last: it contains the texts of the other fields, which are then known.
    return sorted(plan, key=lambda field: hints[field[0]] is Exchange)


@cache
def _plan_to_read(kind: type[Any]) -> list[tuple[str, Read]]:
    """Return the fields that have to be converted from JSON."""
    return [(name, read) for name, _, _, read in _plan(kind) if read is not None]


def _written(encoder: ValueEncoder, value: Any) -> dict[str, Any]:
    written: dict[str, Any] = {}
    kind, short = cast("type[Any]", type(value)), encoder.unchanged_below
    for name, default, write, _ in _plan(kind):
        item = getattr(value, name)
        if item is default or (type(item) in _COMPARABLE and item == default):
            continue
        # The last condition is a fast path for most texts.
        if write is None or item is None or (type(item) is str and len(item) < short):
            written[name] = item
        else:
            written[name] = write(encoder, item)
    return written


def _read(kind: type, data: dict[str, Any]) -> Any:
    for name, read in _plan_to_read(kind):
        if (item := data.get(name)) is not None:
            data[name] = read(item)
    return kind(**data)


def _read_exchange(text: str, decoder: ValueDecoder) -> Exchange:
    return _read(Exchange, decoder.read(text))


def _codec(hint: Any) -> tuple[Write | None, Read | None]:
    """Return the functions that write and read a field of this type; None means unchanged."""
    hint = _without_none(hint)
    if get_origin(hint) is tuple:
        write, read = _codec(get_args(hint)[0])
        return (
            write and (lambda encoder, items: list(map(partial(write, encoder), items))),
            tuple if read is None else (lambda items: tuple(map(read, items))),
        )
    # The only unions that are left are those of transcript parts.
    if hint is TranscriptPart or get_origin(hint) in {Union, UnionType}:
        return _write_part, _read_part
    if hint in {int, float, bool}:
        return None, None
    if hint is str:
        return ValueEncoder.pack_any, None
    if hint is Decimal:
        return (lambda _, value: str(value)), Decimal
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return None, hint
    # An exchange is read later, and only if needed.
    if hint is Exchange:
        return _written, None
    if isinstance(hint, type) and is_dataclass(hint):
        return _written, partial(_read, hint)
    if get_origin(hint) is Mapping:
        return ValueEncoder.pack_arguments, _read_mapping
    return _write_any, None


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        if len(kinds) == 1:
            return kinds[0]
        # Amounts of money may be given as other types, but are stored as Decimal.
        if Decimal in kinds:
            return Decimal
    return hint


def _write_any(encoder: ValueEncoder, value: Any) -> Any:
    if isinstance(value, Mapping):
        value = dict(cast("Mapping[Any, Any]", value))
    return encoder.pack_any(value)


def _read_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is no mapping")
    return cast("Mapping[Any, Any]", value)


def _write_part(encoder: ValueEncoder, part: TranscriptPart) -> list[Any]:
    return [type(part).__name__, _written(encoder, part)]


def _read_part(data: list[Any]) -> TranscriptPart:
    name, body = data
    return _read(_PARTS[name], body)
