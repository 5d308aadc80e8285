"""Converts entries to rows of the tables and back.

SQLite reports a damaged page only if its structure is damaged, so each row has a checksum of its
content.
"""

import json
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final
from zlib import crc32

from treefold.core import version_1
from treefold.core.question import Escalation, Question, QuestionKind
from treefold.core.states import NodeState
from treefold.core.store import Call, Entry

ADD_EVENT: Final = """
    INSERT INTO events (seq, tree, node, n, kind, body, at, state, question, settled, crc)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ADD_NODE: Final = """
    INSERT INTO nodes (
        id, seq, tree, parent, call_key, place, function, idles, source, inherited,
        state, started, ended
    )
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_EVENT: Final = """
    events.seq, events.tree, events.node, n, kind, body, at, events.state, question, settled, crc
"""
_EVENT_COLUMNS: Final = 11
_CALL: Final = "nodes.parent, call_key, place, function, idles, source, inherited"
EVENTS: Final = f"SELECT {_EVENT} FROM events WHERE tree = ? AND seq > ? ORDER BY seq"
# For the nodes in a JSON list: their state, and their call, which belongs to their first event.
# Joining the nodes with the events would search for a call for every event, and takes longer.
NODES: Final = f"""
    SELECT nodes.seq, nodes.id, tree, state,
        (SELECT max(n) FROM events WHERE events.node = nodes.id),
        (SELECT count(*) FROM nodes AS called WHERE called.parent = nodes.id),
        {_CALL}
    FROM json_each(?) AS asked CROSS JOIN nodes ON nodes.id = asked.value
"""
# A question whose entry is lost yields a row of NULLs, so that the damage does not hide it.
_QUESTIONS: Final = f"""
    SELECT {_EVENT}, {_CALL}, questions.id
    FROM questions LEFT JOIN events ON events.seq = questions.seq
    LEFT JOIN nodes ON nodes.id = events.node AND nodes.seq = events.seq
"""
PENDING_QUESTIONS: Final = f"{_QUESTIONS} ORDER BY questions.seq"
UNANSWERED_QUESTIONS: Final = f"""
    {_QUESTIONS}
    WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.question = questions.id)
    ORDER BY questions.seq
"""

# Attributes of a question that most do not have.
_MORE: Final = ("form", "default", "expires", "to", "notified", "deadline")
_NUMBERS: Final = Struct("<qqqd")
_NO_TEXTS: Final[dict[str, str]] = {}  # shared by all entries: creating many dicts is slow
_STATES: Final[dict[str, NodeState]] = {state.value: state for state in NodeState}


def event_row(seq: int, entry: Entry) -> tuple[Any, ...]:
    """Return the row of an entry in ``events``; plain types only, others are slow to bind."""
    tree, node, number, kind, body, at = (
        entry.tree, entry.node, entry.number, entry.kind, entry.body, entry.at
    )  # fmt: skip
    state = None if entry.state is None else entry.state.value
    question = None if entry.question is None else dump_question(entry.question)
    settled = entry.settled
    crc = _entry_checksum(tree, node, number, kind, body, at, state, question, settled, entry.call)
    return seq, tree, node, number, kind, encode_text(body), at, state, question, settled, crc


def node_row(seq: int, entry: Entry, call: Call) -> tuple[Any, ...]:
    """Return the row in ``nodes`` for the first entry of a node, without its state and times."""
    return (
        entry.node,
        seq,
        entry.tree,
        call.parent,
        encode_text(call.key),
        call.index,
        encode_text(call.function),
        int(call.idles),
        call.source,
        call.inherited,
    )


def first_nodes(events: Iterable[Sequence[Any]]) -> list[int]:
    """Return the ids of the nodes whose first entry is in these rows of ``events``."""
    return [row[2] for row in events if row[3] == 1]


def calls_by_seq(nodes: Iterable[Sequence[Any]]) -> dict[int, Call]:
    """Return the calls in these rows of ``nodes``, by the position of their entry."""
    return {seq: _call_of_row(call) for seq, _, _, _, _, _, *call in nodes}


def question_entry(row: Sequence[Any]) -> Entry | None:
    """Return the entry of a row of PENDING_QUESTIONS; None if its checksum is wrong."""
    call = row[_EVENT_COLUMNS:]
    return entry_of_row(row[:_EVENT_COLUMNS], None if call[0] is None else _call_of_row(call))


def _call_of_row(row: Sequence[Any]) -> Call:
    parent, key, index, function, idles, source, inherited = row
    return Call(
        parent=parent,
        key=decode_text(key),
        index=index,
        function=decode_text(function),
        idles=bool(idles),
        source=source,
        inherited=inherited,
    )


def entry_of_row(row: Sequence[Any], call: Call | None) -> Entry | None:
    """Return the entry that was written as *row*; None if its checksum is wrong."""
    seq, tree, node, number, kind, body, at, state, question, settled, crc = row
    if not isinstance(body, str):
        body = decode_text(body)
    if _entry_checksum(tree, node, number, kind, body, at, state, question, settled, call) != crc:
        return None
    return Entry(
        tree=tree,
        node=node,
        number=number,
        kind=kind,
        body=body,
        texts=_NO_TEXTS,
        call=call,
        state=None if state is None else _STATES[state],
        question=None if question is None else load_question(question),
        settled=settled,
        at=at,
        seq=seq,
    )


def _entry_checksum(  # noqa: PLR0913 - one for each column
    tree: int,
    node: int,
    number: int,
    kind: str,
    body: str,
    at: float | None,
    state: str | None,
    question: str | None,
    settled: str | None,
    call: Call | None,
) -> int:
    """Return the checksum of an entry without its texts."""
    # Packing the numbers is faster than formatting them as text.
    numbers = _NUMBERS.pack(tree, node, number, -1.0 if at is None else at)
    text = f"{kind} {state} {settled} {question} {body}"
    if call is not None:
        text += f" {call.parent} {call.key} {call.index} {call.function}"
        text += f" {call.idles} {call.source} {call.inherited}"
    return crc32(text.encode("utf-8", "surrogatepass"), crc32(numbers))


def dump_question(question: Question) -> str:
    """Return a question as JSON."""
    fields = [question.id, question.node_id, question.kind, question.text, question.choices]
    more = {name: value for name in _MORE if (value := getattr(question, name))}
    if question.escalations:
        more["escalations"] = [[one.at, one.to] for one in question.escalations]
    return json.dumps([*fields, question.key, more] if more else [*fields, question.key])


def load_question(json_text: str) -> Question:
    """Return the question that was written as *json_text*."""
    id, node, kind, text, choices, *rest = json.loads(json_text)
    key = rest[0] if rest else None
    more: dict[str, Any] = rest[1] if len(rest) > 1 else {}
    if "escalations" in more:
        more["escalations"] = tuple(Escalation(*one) for one in more["escalations"])
    return Question(
        id=id,
        node_id=node,
        kind=QuestionKind(kind),
        text=text,
        choices=tuple(choices),
        key=version_1.key_of_question(QuestionKind(kind), text) if key is None else key,
        **more,
    )


def checksum(text: str) -> int:
    """Return the CRC-32 of a text."""
    return crc32(text.encode("utf-8", "surrogatepass"))


def pack_hash(hash: str) -> str | bytes:
    """Return a hexadecimal hash as bytes, in half the space, and any other hash as text."""
    try:
        packed = bytes.fromhex(hash)
    except ValueError:
        return encode_text(hash)
    return packed if packed.hex() == hash else encode_text(hash)


def unpack_hash(packed: str | bytes) -> str:
    """Return the hash that was packed."""
    return packed if isinstance(packed, str) else packed.hex()


def encode_text(text: str) -> str | bytes:
    """Return *text* as SQLite can store it: as bytes if it has a lone surrogate."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(stored: str | bytes) -> str:
    """Return the text that ``encode_text`` encoded."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")
