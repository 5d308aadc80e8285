"""Converts entries to rows of the tables and back, and checks what each row says."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from treefold.core.fact import decode, encode
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.store import Call, Entry
from treefold.stores.checksums import (
    DamagedRowError,
    of_call,
    of_call_columns,
    of_event,
    of_question,
    of_start,
    of_state,
    of_timer,
)

ADD_EVENT: Final = """
    INSERT INTO events (seq, tree, node, n, kind, body, at, state, question, settled, crc)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ADD_NODE: Final = """
    INSERT INTO nodes (
        id, seq, tree, parent, call_key, place, function, idles, source, inherited, crc,
        state, ended, state_crc, started, started_crc
    )
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
EVENT: Final = """
    events.seq, events.tree, events.node, n, kind, body, at, events.state, question, settled,
    events.crc
"""
_EVENT_COLUMNS: Final = 11
IS_OPEN: Final = "nodes.state IN ('waiting', 'running', 'paused')"  # exactly as in the index
_CALL: Final = "nodes.parent, place, idles, source, inherited, function, call_key, nodes.crc"
CALL: Final = f"nodes.id, nodes.seq, nodes.tree, {_CALL}"
NODE: Final = f"{CALL}, nodes.state, ended, state_crc, started, started_crc"
EVENTS: Final = f"SELECT {EVENT} FROM events WHERE tree = ? AND seq > ? ORDER BY seq"
# For the nodes in a JSON list: their state, and their call, which belongs to their first event.
# Joining the nodes with the events would search for a call for every event, and takes longer.
NODES: Final = f"""
    SELECT nodes.seq, nodes.id, tree, state,
        (SELECT max(n) FROM events WHERE events.node = nodes.id),
        (SELECT count(*) FROM nodes AS called WHERE called.parent = nodes.id),
        {_CALL}
    FROM json_each(?) AS asked CROSS JOIN nodes ON nodes.id = asked.value
"""
_QUESTION: Final = "questions.node, questions.id, questions.seq, questions.crc"
QUESTIONS: Final = f"SELECT {_QUESTION} FROM questions"
TIMERS: Final = "SELECT timers.node, timers.id, due, sleeps, timers.crc FROM timers"
# A question whose entry is lost yields a row of NULLs, so that the damage does not hide it.
_ASKED: Final = f"""
    SELECT {EVENT}, {_QUESTION} FROM questions LEFT JOIN events ON events.seq = questions.seq
"""
_IN_ORDER: Final = """
    AND (:answered OR NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.question = questions.id))
    ORDER BY questions.seq LIMIT :limit
"""
PENDING_QUESTIONS: Final = f"{_ASKED} WHERE true {_IN_ORDER}"
# Only an open call has pending questions, and these are found by their tree.
QUESTIONS_OF_TREE: Final = f"""
    SELECT {EVENT}, {_QUESTION}
    FROM nodes CROSS JOIN questions ON questions.node = nodes.id
    LEFT JOIN events ON events.seq = questions.seq
    WHERE {IS_OPEN} AND nodes.tree = :tree ORDER BY questions.seq
"""
QUESTIONS_OF_CALL: Final = f"{_ASKED} WHERE questions.node = :node {_IN_ORDER}"
# A row for each call of an agent's last runs, and one for each run without a call.
PAST_RUNS: Final = """
    SELECT runs.id, called.started
    FROM (
        SELECT id, ended FROM nodes
        WHERE function = ? AND idles = 1 AND state = 'success' AND ended IS NOT NULL
        ORDER BY ended DESC, id DESC LIMIT ?
    ) AS runs
    LEFT JOIN nodes AS called ON called.parent = runs.id
    ORDER BY runs.ended, runs.id, called.started
"""

_NO_TEXTS: Final[dict[str, str]] = {}  # shared by all entries: creating many dicts is slow
STATES: Final[dict[str, NodeState]] = {state.value: state for state in NodeState}


class Top(NamedTuple):
    """The row of the top-level call of a tree; see ``top_of_row``."""

    id: int
    number: int
    key: str
    function: str
    source: int
    state: str
    started: float | None
    ended: float | None


def event_row(seq: int, entry: Entry) -> tuple[Any, ...]:
    """Return the row of an entry in ``events``; plain types only, others are slow to bind."""
    tree, node, number, kind, body, at = (
        entry.tree, entry.node, entry.number, entry.kind, entry.body, entry.at
    )  # fmt: skip
    state = None if entry.state is None else entry.state.value
    question = None if entry.question is None else dump_question(entry.question)
    settled = entry.settled
    crc = of_event(seq, tree, node, number, kind, body, at, state, question, settled)
    return seq, tree, node, number, kind, encode_text(body), at, state, question, settled, crc


def call_row(seq: int, entry: Entry, call: Call) -> tuple[Any, ...]:
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
        of_call(entry.node, entry.tree, seq, call),
    )


def first_nodes(events: Iterable[Sequence[Any]]) -> list[int]:
    """Return the ids of the nodes whose first entry is in these rows of ``events``."""
    return [row[2] for row in events if row[3] == 1]


def calls_by_seq(nodes: Iterable[Sequence[Any]]) -> dict[int, Call]:
    """Return the calls in these rows of NODES, by the position of their entry.

    Raises:
        DamagedRowError: one has a wrong checksum.
    """
    return {row[0]: call_of_row((row[1], row[0], row[2], *row[6:])) for row in nodes}


def call_of_row(row: Sequence[Any]) -> Call:
    """Return the call of a node; the columns are those of CALL.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    function, key = check_call(row)
    _, _, _, parent, index, idles, source, inherited, _, _, _ = row
    return Call(
        parent=parent,
        key=key,
        index=index,
        function=function,
        idles=bool(idles),
        source=source,
        inherited=inherited,
    )


def check_call(row: Sequence[Any]) -> tuple[str, str]:
    """Check the call of a node, and return its function and key; the columns are those of CALL.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    id, seq, tree, parent, index, idles, source, inherited, function, key, crc = row
    if type(function) is not str:
        function = decode_text(function)
    if type(key) is not str:
        key = decode_text(key)
    try:
        found = of_call_columns(
            id, tree, seq, parent, index, idles, source, inherited, function, key
        )
    except struct.error:  # a column is no number any more
        found = None
    if found != crc:
        raise _wrong(f"node:{id}")
    return function, key


def top_of_row(row: Sequence[Any], *, checked: bool) -> Top:
    """Return a top-level call; the columns are those of NODE.

    Its call is not checked if it was *checked* already.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    *about, state, ended, state_crc, started, started_crc = row
    function, key = map(decode_text, about[8:10]) if checked else check_call(about)
    id, number, source = row[0], row[4], row[6]
    if of_state(id, state, ended) != state_crc or of_start(id, started) != started_crc:
        raise _wrong(f"the state of node:{id}")
    return Top(id, number, key, function, source, state, started, ended)


def timers_of_rows(rows: Iterable[Sequence[Any]]) -> dict[int, float | None]:
    """Return the nodes with a timer, and when the first of their sleeps ends; None if none sleeps.

    *rows* are those of TIMERS.

    Raises:
        DamagedRowError: one has a wrong checksum.
    """
    found: dict[int, float | None] = {}
    for node, id, due, sleeps, crc in rows:
        if of_timer(node, id, due, sleeps=bool(sleeps)) != crc:
            raise _wrong(f"the timer of question {id}")
        before = found.get(node)
        found[node] = (due if before is None else min(due, before)) if sleeps else before
    return found


def runs_of_rows(rows: Iterable[Sequence[Any]]) -> list[list[float]]:
    """Return when the calls of each run began; *rows* are those of PAST_RUNS."""
    runs: dict[int, list[float]] = {}
    for run, started in rows:
        calls = runs.setdefault(run, [])
        if started is not None:
            calls.append(started)
    return list(runs.values())


def asking_nodes(rows: Iterable[Sequence[Any]]) -> set[int]:
    """Return the nodes that have a pending question; *rows* are those of QUESTIONS.

    Raises:
        DamagedRowError: one has a wrong checksum.
    """
    found: set[int] = set()
    for node, id, seq, crc in rows:
        if of_question(node, id, seq) != crc:
            raise _wrong(f"question {id}")
        found.add(node)
    return found


def asked_question(row: Sequence[Any]) -> Question:
    """Return the question of a row of PENDING_QUESTIONS.

    Raises:
        DamagedRowError: the question or its entry is missing, or has a wrong checksum.
    """
    about = row[_EVENT_COLUMNS:]
    asking_nodes([about])
    id = about[1]
    if row[0] is None:
        raise DamagedRowError(f"the entry of question {id} is missing")
    question = entry_of_row(row[:_EVENT_COLUMNS], None).question
    if question is None or question.id != id:
        raise DamagedRowError(f"the entry of question {id} is another one")
    return question


def entry_of_row(row: Sequence[Any], call: Call | None) -> Entry:
    """Return the entry that was written as *row*; the columns are those of EVENT.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    body = check_event(row)
    seq, tree, node, number, kind, _, at, state, question, settled, _ = row
    return Entry(
        tree=tree,
        node=node,
        number=number,
        kind=kind,
        body=body,
        texts=_NO_TEXTS,
        call=call,
        state=None if state is None else STATES[state],
        question=None if question is None else load_question(question),
        settled=settled,
        at=at,
        seq=seq,
    )


def check_event(row: Sequence[Any]) -> str:
    """Check an event, and return its body; the columns are those of EVENT.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    seq, tree, node, number, kind, body, at, state, question, settled, crc = row
    if not isinstance(body, str):
        body = decode_text(body)
    if of_event(seq, tree, node, number, kind, body, at, state, question, settled) != crc:
        raise _wrong(f"entry {seq}")
    return body


def _wrong(what: str) -> DamagedRowError:
    return DamagedRowError(f"{what} has a wrong checksum")


def dump_question(question: Question) -> str:
    """Return a question as JSON."""
    return encode(question)


def load_question(json_text: str) -> Question:
    """Return the question that was written as *json_text*."""
    return decode(json_text, Question)


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
