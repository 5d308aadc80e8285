"""Convert events to entries of a journal, and back.

An event is written by the types of its fields. Fields that a column of the entry has, and fields
with their default value, are left out. The exchange is on a line of its own, because few readers
need it. Reading a journal creates instances of these classes only. It checks their types, so a
field with a value of another type is converted when it is written, or refused.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from enum import StrEnum
from functools import cache, partial
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin

import msgspec

from treefold.core import agent_events
from treefold.core.agent_events import ResponseCompleted
from treefold.core.errors import InvalidValueError
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
    encode,
    fields_of,
    force_setattr,
    tag_of,
    writer_of,
)
from treefold.core.json_form import kinds_of
from treefold.core.question import Question
from treefold.core.scalars import (
    exact_decimal,
    exact_flag,
    exact_integer,
    exact_member,
    exact_number,
    exact_text,
)
from treefold.core.store import Call, Entry
from treefold.core.truncation import truncated_repr
from treefold.core.usage import NO_USAGE
from treefold.core.value_codec import QUOTED_TAG, ValueDecoder, ValueEncoder, texts_in

assert agent_events  # its classes are events, too
_KINDS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind for kind in kinds_of(Event) if issubclass(kind, Event) and kind.recorded
}
# The events of a call that change nothing for the calls below it: there may be any number of them.
INWARD: Final = tuple(name for name, kind in _KINDS.items() if kind.inward)
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
_TAG: Final = QUOTED_TAG.strip('"')  # of packed values
_YEAR_9999: Final = 253_370_764_800  # its first second; datetime ends with that year
# The types of scalars whose values are written unchanged, and how others become such.
_LEAVES: Final[dict[Any, Callable[[Any], Any]]] = {
    str: exact_text,
    int: exact_integer,
    bool: exact_flag,
    Decimal: exact_decimal,
}
# Makes a context in which a damaged entry raises an error that says what is damaged.
Reporting = Callable[[], AbstractContextManager[None]]
# Types whose values are compared with the default; ``==`` of other types may run foreign code.
_COMPARABLE: Final = {int, float, bool, str, tuple}


def entry_of(event: Event, encoder: ValueEncoder, *, tree: int, number: int) -> Entry:
    """Return *event* as the entry with this *number* of its node.

    *encoder* has the long texts of the conversation that the event is part of.

    Raises:
        InvalidValueError: a field has a value that could not be read again.
    """
    encoder.texts = {}
    body = _event_writer(type(event))(event, encoder)
    question = settled = None
    if isinstance(event, QuestionChanged):
        question = _as_read(event.question.redacted(encoder.redacted))
        # An imported copy of the call has another id.
        body["question"] |= {"id": _after_node(event.question.id), "node": 0}
    elif isinstance(event, QuestionSettled):
        settled = event.id
        body["id"] = _after_node(event.id)
    exchange = body.pop(_EXCHANGE, None)
    text = encode(body)
    return Entry(
        tree=tree,
        node=event.node,
        number=number,
        kind=type(event).__name__,
        body=text if exchange is None else f"{text}\n{encode(exchange)}",
        texts=encoder.texts,
        call=_call_of(event),
        state=event.state if isinstance(event, CallEnded) else event.new_state,
        question=question,
        settled=settled,
        at=getattr(event, "at", None),
    )


def _as_read(question: Question) -> Question:
    """Return *question* as stores return it, which write it once more for those who answer."""
    try:
        return decode(encode(question), Question)
    except (TypeError, msgspec.MsgspecError) as error:
        raise InvalidValueError(f"a question cannot be recorded: {error}") from None


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


def events_of(
    entries: Iterable[Entry],
    text_of: Callable[[str], str],
    reporting: Reporting = nullcontext,
) -> list[Event]:
    """Return the events of *entries*.

    Args:
        text_of: returns a long text by its hash.
        reporting: wraps what reads an exchange later, and says whose it is if it is damaged.

    Raises:
        ValueError: an entry is damaged.
    """
    decoder = ValueDecoder(text_of)
    read_exchange = partial(_read_exchange, decoder, reporting)
    return [_event_of(entry, decoder, read_exchange) for entry in entries]


def hashes_in(entry: Entry) -> set[str]:
    """Return the hashes of the long texts that *entry* refers to.

    Raises:
        ValueError: its body is damaged.
    """
    return {hash for line in entry.body.split("\n") for hash in texts_in(json.loads(line))}


def _event_of(
    entry: Entry, decoder: ValueDecoder, read_exchange: Callable[[str], Exchange]
) -> Event:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise ValueError(f"unknown kind of event {entry.kind!r}")
    if entry.at is not None and not 0 <= entry.at < _YEAR_9999:
        raise ValueError(f"{entry.at!r} is not a time")
    text, _, exchange = entry.body.partition("\n")
    if bool(exchange) is not (kind is ResponseCompleted):
        raise ValueError(f"{entry.kind} with{'' if exchange else 'out'} an exchange")
    try:
        event = _decoded(kind, entry, text, decoder)
    except (KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a journal's {entry.kind}: {error}") from error
    if exchange:
        force_setattr(event, _EXCHANGE, LazyExchange(read_exchange, exchange))
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


def _read_exchange(decoder: ValueDecoder, reporting: Reporting, text: str) -> Exchange:
    with reporting():
        return convert(decoder.read(text), Exchange)


# How each class is written: computed once from its fields.


# A field that a body has: its name, its name in JSON, its default, the type of the values that are
# written unchanged (but no long texts), and how all others are written.
_Field = tuple[str, str, Any, type | None, Write]


@cache
def _event_writer(kind: type[Event]) -> Write:
    return _facts((kind,))


def _facts(kinds: tuple[type[Fact], ...]) -> Write:
    """Return how facts are written that are of one of these classes."""
    plans = {kind: (tag_of(kind), _plan(kind)) for kind in kinds}

    def write_fact(fact: Any, encoder: ValueEncoder) -> dict[str, Any]:
        # The class that a LazyExchange says it has is that of an exchange.
        known, short = plans.get(fact.__class__), encoder.unchanged_below
        tag, plan = known or plans[_kind_of(fact, kinds)]
        written: dict[str, Any] = {} if tag is None else {"type": tag}
        for name, json_name, default, kind, write in plan:
            item = getattr(fact, name)
            if item is default or (type(item) in _COMPARABLE and item == default):
                continue
            # A fast path for most values.
            if type(item) is kind and (kind is not str or len(item) < short):
                written[json_name] = item
                continue
            try:
                written[json_name] = write(item, encoder)
            except TypeError as error:
                what = f"{fact.__class__.__name__}.{name}"
                raise InvalidValueError(f"{what} cannot be recorded: it {error}") from None
        return written

    return write_fact


def _kind_of(fact: Any, kinds: tuple[type[Fact], ...]) -> type[Fact]:
    """Return the class that *fact*, of a subclass, is written and read as."""
    for kind in kinds:
        if isinstance(fact, kind):
            return kind
    known = " or ".join(kind.__name__ for kind in kinds)
    raise TypeError(f"has to be {known}, not {truncated_repr(fact, 100)}")


@cache
def _plan(kind: type[Fact]) -> list[_Field]:
    """Return how the fields that a body has are written."""
    plan = [
        (
            one.name,
            one.json_name,
            one.default,
            *_writer(one.hint, is_verbatim=VERBATIM in one.marks),
        )
        for one in fields_of(kind)
        if COLUMN not in one.marks
    ]
    # The exchange comes last: it contains the texts of the other fields, which are then known.
    return sorted(plan, key=lambda field: field[0] == _EXCHANGE)


def _writer(hint: Any, *, is_verbatim: bool) -> tuple[type | None, Write]:
    """Return the type of the values that are written unchanged, and how others are written."""
    write = writer_of(hint, partial(_leaf, is_verbatim=is_verbatim), _facts, _array)
    assert write is not None  # as for every field of an event
    kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    kind = str if kinds[0] is Any else kinds[0]
    if kind is float and NoneType in kinds:
        return float, _write_optional_number
    if NoneType in kinds:
        write = _optional(write)
    return kind if kind in _LEAVES or _is_enum(kind) else None, write


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, StrEnum)


def _optional(write: Write) -> Write:
    return lambda value, encoder: None if value is None else write(value, encoder)


def _write_optional_number(value: Any, _: ValueEncoder) -> float | None:
    # A time limit that is not finite is the same as none; msgspec writes one of Python's as null.
    is_none = value is None or (isinstance(value, float) and not isfinite(value))
    return None if is_none else exact_number(value)


def _array(write: Write | None) -> Write:
    assert write is not None  # as for every field of an event

    def write_items(items: Any, encoder: ValueEncoder) -> list[Any]:
        if type(items) is not tuple and not isinstance(items, list):
            raise TypeError(f"has to be a tuple, not {truncated_repr(items, 100)}")
        return [write(item, encoder) for item in cast("tuple[Any, ...]", items)]

    return write_items


def _leaf(hint: Any, *, is_verbatim: bool) -> Write:
    if hint is Any:
        return _write_value
    if get_origin(hint) is Mapping:
        return _write_arguments
    if _is_enum(hint):
        return lambda value, _: exact_member(hint, value)
    if hint is str and not is_verbatim:
        return _write_text
    convert = exact_number if hint is float else _LEAVES[hint]
    return lambda value, _: convert(value)


def _write_text(text: Any, encoder: ValueEncoder) -> Any:
    return encoder.pack_any(text if type(text) is str else exact_text(text))


def _write_arguments(args: Any, encoder: ValueEncoder) -> Any:
    if type(args) is not dict and not isinstance(args, Mapping):
        raise TypeError(f"has to be a mapping, not {truncated_repr(args, 100)}")
    packed = encoder.pack_arguments(cast("Mapping[str, Any]", args))
    # Only names that are no texts, or that are a tag, are packed.
    if _TAG in packed:
        for name in cast("Mapping[Any, Any]", args):
            exact_text(name)
    return packed


def _write_value(value: Any, encoder: ValueEncoder) -> Any:
    if isinstance(value, Mapping):
        value = dict(cast("Mapping[Any, Any]", value))
    return encoder.pack_any(value)
