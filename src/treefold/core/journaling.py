"""Convert events to entries of a journal, and back.

An event is written by the types of its fields. Fields that a column of the entry has, and fields
with their default value, are left out. The exchange is on a line of its own, because few readers
need it. Reading a journal creates instances of these classes only.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, Final, cast, get_origin

import msgspec

from treefold.core import agent_events
from treefold.core.agent_events import ResponseCompleted
from treefold.core.events import (
    CallEnded,
    CallInherited,
    CallRequested,
    Event,
    QuestionChanged,
    QuestionSettled,
    TreeForked,
)
from treefold.core.exchange import PLAIN, Exchange, Finish, LazyExchange
from treefold.core.fact import (
    COLUMN,
    VERBATIM,
    Fact,
    Write,
    convert,
    decode,
    fields_of,
    force_setattr,
    tag_of,
    writer_of,
)
from treefold.core.json_form import kinds_of
from treefold.core.store import Call, Entry
from treefold.core.usage import NO_USAGE
from treefold.core.value_codec import QUOTED_TAG, ValueDecoder, ValueEncoder

assert agent_events  # its classes are events, too
_KINDS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind for kind in kinds_of(Event) if issubclass(kind, Event) and kind.recorded
}
# These have the id of a question, which begins with that of its node.
_WITH_QUESTION_IDS: Final = frozenset(
    kind for kind in _KINDS.values() if issubclass(kind, QuestionChanged | QuestionSettled)
)
# The columns of these have a call.
_WITH_CALLS: Final = frozenset({CallRequested, CallInherited, TreeForked})
_EXCHANGE: Final = "exchange"
# In the place of one that is on the second line of a body, until that is read.
_NO_EXCHANGE: Final = msgspec.to_builtins(
    Exchange(dialect=PLAIN, sent=(), received=(), finish=Finish.ANSWERED, usage=NO_USAGE)
)
_YEAR_9999: Final = 253_370_764_800  # its first second; datetime ends with that year
# Types whose values are compared with the default; ``==`` of other types may run foreign code.
_COMPARABLE: Final = {int, float, bool, str, tuple}


def entry_of(event: Event, encoder: ValueEncoder, *, tree: int, number: int) -> Entry:
    """Return *event* as the entry with this *number* of its node.

    *encoder* has the long texts of the conversation that the event is part of.
    """
    encoder.texts = {}
    body = _written(event, encoder)
    question = settled = None
    if isinstance(event, QuestionChanged):
        question = event.question.redacted(encoder.redacted)
        # An imported copy of the call has another id.
        body["question"] |= {"id": _after_node(event.question.id), "node": 0}
    elif isinstance(event, QuestionSettled):
        settled = event.id
        body["id"] = _after_node(event.id)
    exchange = body.pop(_EXCHANGE, None)
    text = _json(body)
    return Entry(
        tree=tree,
        node=event.node,
        number=number,
        kind=type(event).__name__,
        body=text if exchange is None else f"{text}\n{_json(exchange)}",
        texts=encoder.texts,
        call=_call_of(event),
        state=event.state if isinstance(event, CallEnded) else event.new_state,
        question=question,
        settled=settled,
        at=getattr(event, "at", None),
    )


def _call_of(event: Event) -> Call | None:
    match event:
        case CallRequested() | CallInherited():
            return Call(
                parent=event.parent or 0,
                key=event.key,
                index=event.index,
                function=event.function,
                idles=event.is_agent,
            )
        case TreeForked():
            return Call(
                parent=0,
                key=event.key,
                index=event.tree_number,
                function=event.function,
                idles=event.is_agent,
                source=event.source,
                inherited=event.inherited,
            )
        case _:
            return None


def _after_node(question_id: str) -> str:
    return question_id.partition("-")[2]


def _json(body: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(body).decode()
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form; the json module writes it as an escape.
        return json.dumps(body, separators=(",", ":"))


def events_of(entries: Iterable[Entry], text_of: Callable[[str], str]) -> list[Event]:
    """Return the events of *entries*; *text_of* returns a long text by its hash.

    Raises:
        ValueError: an entry is damaged.
    """
    decoder = ValueDecoder(text_of)
    return [_event_of(entry, decoder) for entry in entries]


def _event_of(entry: Entry, decoder: ValueDecoder) -> Event:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise ValueError(f"unknown kind of event {entry.kind!r}")
    if entry.at is not None and not 0 <= entry.at < _YEAR_9999:
        raise ValueError(f"{entry.at!r} is not a time")
    text, _, exchange = entry.body.partition("\n")
    try:
        event = _decoded(kind, entry, text, decoder)
    except (KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a journal's {entry.kind}: {error}") from error
    if exchange:
        force_setattr(event, _EXCHANGE, LazyExchange(partial(_read_exchange, exchange, decoder)))
    return event


def _decoded(kind: type[Event], entry: Entry, text: str, decoder: ValueDecoder) -> Event:
    columns = _columns(kind, entry)
    # Most bodies have nothing that is to be unpacked. They and their columns are read as one JSON
    # object, by the decoder of the class.
    if QUOTED_TAG not in text and kind not in _WITH_QUESTION_IDS:
        try:
            tail = msgspec.json.encode(columns)
            # The last of two values for one field counts, so no body replaces a column.
            whole = tail if text == "{}" else text[:-1].encode() + b"," + tail[1:]
            return decode(whole, kind)
        except (UnicodeEncodeError, msgspec.DecodeError):
            # It does not accept lone surrogates; the json module does.
            pass
    body: dict[str, Any] = decoder.read(text)
    if issubclass(kind, QuestionChanged):
        asked = body["question"]
        body["question"] = asked | {"id": f"{entry.node}-{asked['id']}", "node": entry.node}
    elif issubclass(kind, QuestionSettled):
        body["id"] = f"{entry.node}-{body['id']}"
    return convert(body | columns, kind)


def _columns(kind: type[Event], entry: Entry) -> dict[str, Any]:
    """Return the fields of an event that are in the columns of its entry."""
    # Both, even if there is no time: what the columns lack is not taken from the body.
    columns: dict[str, Any] = {"node": entry.node, "at": entry.at}
    if kind is ResponseCompleted:
        columns[_EXCHANGE] = _NO_EXCHANGE
    if (call := entry.call) is not None:
        columns |= {"key": call.key, "function": call.function, "is_agent": call.idles}
        if kind is TreeForked:
            columns |= {"tree_number": call.index, "source": call.source}
            columns["inherited"] = call.inherited
        else:
            columns |= {"parent": call.parent or None, "index": call.index}
    elif kind in _WITH_CALLS:
        raise ValueError(f"{entry.kind} has no call")
    return columns


def _read_exchange(text: str, decoder: ValueDecoder) -> Exchange:
    return convert(decoder.read(text), Exchange)


# How each class is written: computed once from its fields.


def _written(fact: Fact, encoder: ValueEncoder) -> dict[str, Any]:
    # The class that a LazyExchange says it has is that of an exchange.
    kind, short = fact.__class__, encoder.unchanged_below
    tag = tag_of(kind)
    written: dict[str, Any] = {} if tag is None else {"type": tag}
    for name, json_name, default, write in _plan(kind):
        item = getattr(fact, name)
        if item is default or (type(item) in _COMPARABLE and item == default):
            continue
        # The last condition is a fast path for most texts.
        if write is None or item is None or (type(item) is str and len(item) < short):
            written[json_name] = item
        else:
            written[json_name] = write(item, encoder)
    return written


@cache
def _plan(kind: type[Fact]) -> list[tuple[str, str, Any, Write | None]]:
    """Return the names of the fields that a body has, their defaults, and how they are written."""
    plan = [
        (
            one.name,
            one.json_name,
            one.default,
            _writer(one.hint) if VERBATIM not in one.marks else None,
        )
        for one in fields_of(kind)
        if COLUMN not in one.marks
    ]
    # The exchange comes last: it contains the texts of the other fields, which are then known.
    return sorted(plan, key=lambda field: field[0] == _EXCHANGE)


def _writer(hint: Any) -> Write | None:
    return writer_of(hint, _leaf, _written, _array)


def _array(write: Write | None) -> Write | None:
    return write and (lambda items, encoder: [write(item, encoder) for item in items])


def _leaf(hint: Any) -> Write | None:
    if hint is str:
        return _write_text
    if hint is Any:
        return _write_value
    return _write_arguments if get_origin(hint) is Mapping else None


def _write_text(text: str, encoder: ValueEncoder) -> Any:
    return encoder.pack_any(text)


def _write_arguments(args: Mapping[str, Any], encoder: ValueEncoder) -> Any:
    return encoder.pack_arguments(args)


def _write_value(value: Any, encoder: ValueEncoder) -> Any:
    if isinstance(value, Mapping):
        value = dict(cast("Mapping[Any, Any]", value))
    return encoder.pack_any(value)
