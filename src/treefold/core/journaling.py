"""Events as entries of a journal, and back.

Each kind of event is written by the types of its fields: what an entry says of its node anyway, and
what has its default value, is left out. What was on the wire has a line of its own, since few read
it. Nothing but these classes is ever made from a journal.
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
from treefold.core.events import (
    CallEnded,
    CallInherited,
    CallPaused,
    CallRequested,
    Event,
    TreeForked,
)
from treefold.core.exchange import Exchange, LazyExchange
from treefold.core.long_texts import LongTexts
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
        events.QuestionAsked,
        events.QuestionSettled,
        events.CallEnded,
        events.TreeForked,
        events.CallInherited,
        events.CallReopened,
        events.AgentEdited,
        agent_events.ConversationOpened,
        agent_events.LeaseAwaited,
        agent_events.RequestSent,
        agent_events.RequestRetried,
        agent_events.RequestFailed,
        agent_events.NoticeGiven,
        agent_events.ResponseCompleted,
    )
}
_PARTS: Final[dict[str, type[TranscriptPart]]] = {
    part.__name__: part for part in (UserText, ModelText, ThinkingPart, ToolUse, ToolResult)
}
_SAID_BY_ENTRY: Final = {  # fields that the entry has, by class
    CallRequested: {"node", "parent", "index", "function", "key", "is_agent"},
    TreeForked: {"node", "at", "number", "function", "key", "is_agent", "source", "inherited"},
    CallInherited: {"node", "parent", "index", "function", "key", "is_agent"},
    Question: {"id", "node_id"},
}
_CALLS: Final = {CallRequested, CallInherited, TreeForked}
_STATE_AFTER: Final[dict[type[Event], NodeState]] = {
    CallRequested: NodeState.Waiting,
    CallInherited: NodeState.Waiting,
    TreeForked: NodeState.Running,  # as what it goes on from
    CallPaused: NodeState.Paused,
    events.CallStarted: NodeState.Running,
    events.CallResumed: NodeState.Running,
    events.CallReopened: NodeState.Running,
}
_SAID_OF_ALL: Final = {"node", "at"}
_NOTHING: Final = f'{{"v":{VERSION}}}'  # the body of an event that its entry says all about
_COMPARED: Final = {int, float, bool, str, tuple}  # others may say anything when compared

Write = Callable[[Any, ValueEncoder], Any]
Read = Callable[[Any], Any]


def entry_of(
    event: Event,
    *,
    tree: int,
    number: int,
    redact: Callable[[str], str] | None = None,
    known: LongTexts | None = None,
) -> Entry:
    """Return *event* as the entry with this *number* of its node; *known* texts may come again."""
    kind = type(event)
    packer = ValueEncoder(redact, known)
    body: dict[str, Any] = {"v": VERSION, **_written(event, packer)}
    question: Question | None = None
    settled: str | None = None
    if isinstance(event, events.QuestionAsked):
        question = _redacted(event.question, packer)
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
        texts=packer.texts,
        call=_call_of(event) if kind in _CALLS else None,
        state=state,
        question=question,
        settled=settled,
        at=getattr(event, "at", None),
    )


def events_of(
    entries: Iterable[Entry], text_of: Callable[[str], str], upgrade: Upgrade | None = None
) -> list[Event]:
    """Return the events that *entries* were made from; *text_of* knows the long texts.

    Entries of an older version are upgraded by *upgrade*, which whoever reads a tree piece by piece
    keeps from one time to the next.

    Raises:
        ValueError: one is damaged, or from a newer version.
    """
    unpacker, upgrade = ValueDecoder(text_of), upgrade or Upgrade()
    return [_event_of(entry, unpacker, upgrade) for entry in entries]


def _event_of(entry: Entry, unpacker: ValueDecoder, upgrade: Upgrade) -> Event:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise ValueError(f"events of the kind {entry.kind!r} are not known here")
    try:
        text, _, exchange = entry.body.partition("\n")
        body: dict[str, Any] = unpacker.read(text) if text != _NOTHING else {"v": VERSION}
        if (version := body.pop("v")) > VERSION:
            raise ValueError(f"a newer treefold has written it (version {version})")
        if version < VERSION:
            return upgrade(_event_with(kind, entry, body, exchange, unpacker))
        return _event_with(kind, entry, body, exchange, unpacker)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a journal's {entry.kind}: {error!r}") from error


def _event_with(
    kind: type[Event], entry: Entry, body: dict[str, Any], exchange: str, unpacker: ValueDecoder
) -> Event:
    body["node"] = entry.node
    if entry.at is not None:
        body["at"] = entry.at
    if entry.call is not None:
        body.update(_said_by(entry.call, kind))
    elif kind is events.QuestionAsked:
        number = body["question"].pop("k")
        fixed = {"id": f"{entry.node}-{number}", "node_id": entry.node}
        body["question"] = _read(Question, body["question"] | fixed)
        return events.QuestionAsked(**body)
    elif kind is events.QuestionSettled:
        body["id"] = f"{entry.node}-{body['id']}"
    elif exchange:
        body["exchange"] = LazyExchange(partial(_read_exchange, exchange, unpacker))
    return _read(kind, body)


def _call_of(event: Event) -> Call:
    if isinstance(event, TreeForked):
        return Call(
            parent=0,
            key=event.key,
            index=event.number,
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


def _said_by(call: Call, kind: type[Event]) -> dict[str, Any]:
    """Return the fields of an event of this *kind* that its entry's call has."""
    if kind is TreeForked:
        found: dict[str, Any] = {"number": call.index, "source": call.source}
        found["inherited"] = call.inherited
    else:
        found = {"parent": call.parent or None, "index": call.index}
    return found | {"key": call.key, "function": call.function, "is_agent": call.idles}


def _redacted(question: Question, packer: ValueEncoder) -> Question:
    return Question(
        id=question.id,
        node_id=question.node_id,
        kind=question.kind,
        text=packer.redacted(question.text),
        choices=tuple(map(packer.redacted, question.choices)),
        key=question.key,
    )


def _json(body: dict[str, Any]) -> str:
    try:
        return _encoder()(body, inf_nan_mode="constants").decode()
    except ValueError:  # half a character, which only an escape can say
        return json.dumps(body, separators=(",", ":"))


@cache
def _encoder() -> Callable[..., bytes]:
    from pydantic_core import to_json  # noqa: PLC0415 - who only reads need not wait for it

    return to_json


# How each class is written, worked out once from its annotations


@cache
def _plan(kind: type[Any]) -> list[tuple[str, Any, Write | None, Read | None]]:
    hints = get_type_hints(kind)
    left_out = _SAID_BY_ENTRY.get(kind, _SAID_OF_ALL if issubclass(kind, Event) else set[str]())
    plan: list[tuple[str, Any, Write | None, Read | None]] = []
    for field in fields(kind):
        if field.name in left_out:
            continue
        default = field.default if field.default_factory is MISSING else field.default_factory()
        plan.append((field.name, default, *_codec(hints[field.name])))
    return sorted(plan, key=lambda field: hints[field[0]] is Exchange)  # it has the others in it


@cache
def _plan_to_read(kind: type[Any]) -> list[tuple[str, Read]]:
    """Return the fields that are not as JSON has them."""
    return [(name, read) for name, _, _, read in _plan(kind) if read is not None]


def _written(value: Any, packer: ValueEncoder) -> dict[str, Any]:
    written: dict[str, Any] = {}
    kind = cast("type[Any]", type(value))
    for name, default, write, _ in _plan(kind):
        item = getattr(value, name)
        if item is default or (type(item) in _COMPARED and item == default):
            continue
        written[name] = item if write is None or item is None else write(item, packer)
    return written


def _read(kind: type, data: dict[str, Any]) -> Any:
    for name, read in _plan_to_read(kind):
        if (item := data.get(name)) is not None:
            data[name] = read(item)
    return kind(**data)


def _read_exchange(text: str, unpacker: ValueDecoder) -> Exchange:
    return _read(Exchange, unpacker.read(text))


def _codec(hint: Any) -> tuple[Write | None, Read | None]:
    """Return how a field of this type is written and read; None: as it is."""
    hint = _without_none(hint)
    if get_origin(hint) is tuple:
        write, read = _codec(get_args(hint)[0])
        return (
            lambda items, packer: [write(i, packer) if write else i for i in items],
            tuple if read is None else (lambda items: tuple([read(item) for item in items])),
        )
    if hint is TranscriptPart or get_origin(hint) in {Union, UnionType}:  # of parts
        return _write_part, _read_part
    if hint in {int, float, bool}:
        return None, None
    if hint is str:
        return (lambda value, packer: packer.pack_any(value)), None
    if hint is Decimal:
        return (lambda value, _: str(value)), Decimal
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return (lambda value, _: str(value)), hint
    if hint is Exchange:  # which is read later, if at all
        return _written, None
    if isinstance(hint, type) and is_dataclass(hint):
        return _written, partial(_read, hint)
    if get_origin(hint) is Mapping:
        return (lambda value, packer: packer.pack_arguments(dict(value))), _read_mapping
    return (lambda value, packer: packer.pack_any(_plain_dict(value))), None


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in {Union, UnionType}:
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        if len(kinds) == 1:
            return kinds[0]
        if Decimal in kinds:  # what else may be given for money is made one
            return Decimal
    return hint


def _plain_dict(value: Any) -> Any:
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else value


def _read_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"{type(value).__name__} is no mapping")
    return cast("Mapping[Any, Any]", value)


def _write_part(part: TranscriptPart, packer: ValueEncoder) -> list[Any]:
    return [type(part).__name__, _written(part, packer)]


def _read_part(data: list[Any]) -> TranscriptPart:
    name, body = data
    return _read(_PARTS[name], body)
