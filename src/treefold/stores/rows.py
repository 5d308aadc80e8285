"""Entries as the rows of our tables, and back. Does not know the connection that they go through.

SQLite tells of a damaged page only if its structure is: each row has a sum over what is in it.
"""

import json
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final
from zlib import crc32

from treefold.core import version_1
from treefold.core.question import Question, QuestionKind
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
# For the nodes in a JSON list: where each stands, and its call, which its first event belongs to.
# To join them with the events would search for a call with every event, and takes longer.
NODES: Final = f"""
    SELECT nodes.seq, nodes.id, tree, state,
        (SELECT max(n) FROM events WHERE events.node = nodes.id),
        (SELECT count(*) FROM nodes AS called WHERE called.parent = nodes.id),
        {_CALL}
    FROM json_each(?) AS asked CROSS JOIN nodes ON nodes.id = asked.value
"""
# A question whose entry is lost has a row of nothing: the damage is not to hide it.
UNANSWERED: Final = f"""
    SELECT {_EVENT}, {_CALL}, questions.id
    FROM questions LEFT JOIN events ON events.seq = questions.seq
    LEFT JOIN nodes ON nodes.id = events.node AND nodes.seq = events.seq
    WHERE NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.question = questions.id)
    ORDER BY questions.seq
"""

_NUMBERS: Final = Struct("<qqqd")
_NO_TEXTS: Final[dict[str, str]] = {}  # one for all: to make many takes long
_STATES: Final[dict[str, NodeState]] = {state.value: state for state in NodeState}


def event_row(seq: int, entry: Entry) -> tuple[Any, ...]:
    """Return the row of an entry among the events; plain types only, others are slow to bind."""
    tree, node, number, kind, body, at = (
        entry.tree, entry.node, entry.number, entry.kind, entry.body, entry.at
    )  # fmt: skip
    state = None if entry.state is None else entry.state.value
    question = None if entry.question is None else question_text(entry.question)
    settled = entry.settled
    crc = _sum(tree, node, number, kind, body, at, state, question, settled, entry.call)
    return seq, tree, node, number, kind, kept(body), at, state, question, settled, crc


def node_row(seq: int, entry: Entry, call: Call) -> tuple[Any, ...]:
    """Return the row of the node that an entry is the first of, but for its state and times."""
    return (
        entry.node,
        seq,
        entry.tree,
        call.parent,
        kept(call.key),
        call.index,
        kept(call.function),
        int(call.idles),
        call.source,
        call.inherited,
    )


def first_nodes(events: Iterable[Sequence[Any]]) -> list[int]:
    """Return the nodes whose first entries are among these rows of *events*."""
    return [row[2] for row in events if row[3] == 1]


def calls_by_seq(nodes: Iterable[Sequence[Any]]) -> dict[int, Call]:
    """Return the calls of these rows of *nodes*, by the places of their entries."""
    return {seq: _call_of_row(call) for seq, _, _, _, _, _, *call in nodes}


def asking_entry(row: Sequence[Any]) -> Entry | None:
    """Return the entry of a row of an event and a call; None if that is not what was written."""
    call = row[_EVENT_COLUMNS:]
    return entry_of_row(row[:_EVENT_COLUMNS], None if call[0] is None else _call_of_row(call))


def _call_of_row(row: Sequence[Any]) -> Call:
    parent, key, index, function, idles, source, inherited = row
    return Call(
        parent=parent,
        key=given(key),
        index=index,
        function=given(function),
        idles=bool(idles),
        source=source,
        inherited=inherited,
    )


def entry_of_row(row: Sequence[Any], call: Call | None) -> Entry | None:
    """Return the entry that was written as *row*, or None if that is not what was written."""
    seq, tree, node, number, kind, body, at, state, question, settled, crc = row
    body = given(body)
    if _sum(tree, node, number, kind, body, at, state, question, settled, call) != crc:
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
        question=None if question is None else question_of(question),
        settled=settled,
        at=at,
        seq=seq,
    )


def _sum(  # noqa: PLR0913 - one for each column
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
    """Return the sum over all that an entry says, its texts aside."""
    numbers = _NUMBERS.pack(tree, node, number, -1.0 if at is None else at)  # text is slow to make
    text = f"{kind} {state} {settled} {question} {body}"
    if call is not None:
        text += f" {call.parent} {call.key} {call.index} {call.function}"
        text += f" {call.idles} {call.source} {call.inherited}"
    return text_sum(text, crc32(numbers))


def question_text(question: Question) -> str:
    """Return a question as text."""
    said = [question.id, question.node_id, question.kind, question.text, question.choices]
    return json.dumps([*said, question.key])


def question_of(text: str) -> Question:
    """Return the question that was written as *text*."""
    id, node, kind, words, choices, *key = json.loads(text)
    return Question(
        id=id,
        node_id=node,
        kind=QuestionKind(kind),
        text=words,
        choices=tuple(choices),
        key=key[0] if key else version_1.key_of_question(QuestionKind(kind), words),
    )


def text_sum(text: str, before: int = 0) -> int:
    """Return the sum over a text, and over what was *before* it."""
    return crc32(text.encode("utf-8", "surrogatepass"), before)


def short_hash(hash: str) -> str | bytes:
    """Return a hash in half the room, if it is one as they are usually written."""
    try:
        short = bytes.fromhex(hash)
    except ValueError:
        return kept(hash)
    return short if short.hex() == hash else kept(hash)


def long_hash(short: str | bytes) -> str:
    """Return the hash that was made short; one that is kept as text may have half a character."""
    return short if isinstance(short, str) else short.hex()


def kept(text: str) -> str | bytes:
    """Return *text* as it can be stored: one with half a character in it as bytes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def given(kept: str | bytes) -> str:
    """Return the text that was stored."""
    return kept if isinstance(kept, str) else kept.decode("utf-8", "surrogatepass")
