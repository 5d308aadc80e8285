"""Entries as the JSON that ``append`` takes, and rows of the tables as entries.

A text of PostgreSQL is valid UTF-8 without NUL. One that is not is stored as a marker and an
escaped form, so that every text comes back as it was, and equal texts are equal in the database.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from treefold.core.states import NodeState
from treefold.core.store import Call, Entry
from treefold.stores.checksums import DamagedRowError, of_call, of_event
from treefold.stores.rows import load_question

EVENT: Final = """
    events.place, events.tree, events.node, n, kind, body, at, events.state, question, settled,
    events.crc
"""
_EVENT_COLUMNS: Final = 11
CALL: Final = """
    nodes.id, nodes.drive, nodes.tree, parent, number, idles, source, inherited, function, call_key,
    nodes.crc
"""
EVENTS: Final = f"""
    SELECT drives.last, {EVENT}, {CALL}
    FROM drives LEFT JOIN events ON events.tree = drives.node AND place > %(after)s
    LEFT JOIN nodes ON n = 1 AND nodes.id = events.node
    WHERE drives.node = %(tree)s ORDER BY place
"""

_MARK: Final = "\x01"
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")
_TEXT_HASH: Final = b"\0text "  # before a hash that is not hexadecimal
_NO_TEXTS: Final[dict[str, str]] = {}  # shared by all entries: creating many dicts is slow
_STATES: Final[dict[str, NodeState]] = {state.value: state for state in NodeState}


def encode_text(text: str) -> str:
    """Return *text* in a form that a column of type text accepts; nearly always *text* itself."""
    if _UNFIT.search(text) is None and not text.startswith(_MARK):
        return text
    return _MARK + text.encode("unicode_escape").decode("ascii")


def encode_texts(texts: Collection[str]) -> str:
    """Return several texts as a list in JSON."""
    return compact([encode_text(text) for text in texts])


def decode_text(stored: str) -> str:
    """Return the text that ``encode_text`` encoded."""
    if not stored.startswith(_MARK):
        return stored
    return stored[1:].encode("ascii").decode("unicode_escape")


def pack_hash(hash: str) -> bytes:
    """Return a hexadecimal hash as bytes, in half the space, and any other hash as text."""
    try:
        packed = bytes.fromhex(hash)
    except ValueError:
        packed = b""
    if packed.hex() == hash and not packed.startswith(_TEXT_HASH):
        return packed
    return _TEXT_HASH + hash.encode("utf-8", "surrogatepass")


def unpack_hash(packed: bytes) -> str:
    """Return the hash that was packed."""
    if packed.startswith(_TEXT_HASH):
        return packed[len(_TEXT_HASH) :].decode("utf-8", "surrogatepass")
    return packed.hex()


def compact(value: Any) -> str:
    """Return *value* as JSON, for a parameter of type json."""
    return msgspec.json.encode(value).decode()


def entries_of_rows(rows: Sequence[Sequence[Any]], tree: int, after: int) -> list[Entry]:
    """Return the entries of the rows that EVENTS found.

    Raises:
        DamagedRowError: one has a wrong checksum, or is missing.
    """
    # There is one row without an entry if there are none.
    found = [entry_of_row(row) for _, *row in rows if row[0] is not None]
    for place, entry in enumerate(found, after + 1):
        if entry.seq != place:
            raise DamagedRowError(f"entry {place} of node:{entry.tree} is missing")
    if rows and after + len(found) < rows[0][0]:
        raise DamagedRowError(f"the last entries of node:{tree} are missing")
    return found


def entries_around_call(rows: Sequence[Sequence[Any]]) -> list[Entry]:
    """Return the entries of the rows that AROUND found.

    Raises:
        DamagedRowError: one has a wrong checksum, or is missing.
    """
    found: list[Entry] = []
    numbers: dict[int, int] = {}
    for _, is_below, *row in rows:
        entry = entry_of_row(row)
        found.append(entry)
        if is_below:
            numbers[entry.node] = expected = numbers.get(entry.node, 0) + 1
            if entry.number != expected:
                raise DamagedRowError(f"entry {expected} of node:{entry.node} is missing")
    if rows and sum(numbers.values()) < (rows[0][0] or 0):
        raise DamagedRowError("the last entries of calls are missing")
    return found


def entry_of_row(row: Sequence[Any]) -> Entry:
    """Return the entry of a row with the columns of EVENT, and of CALL if it is to have a call.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    event, call = row[:_EVENT_COLUMNS], row[_EVENT_COLUMNS:]
    place, tree, node, number, kind, body, at, state, question, settled, crc = event
    kind, body = decode_text(kind), decode_text(body)
    settled = None if settled is None else decode_text(settled)
    if of_event(0, tree, node, number, kind, body, at, state, question, settled) != crc:
        raise DamagedRowError(f"entry {place} of node:{tree} has a wrong checksum")
    if number == 1 and call and call[0] is None:
        raise DamagedRowError(f"node:{node} is missing")
    return Entry(
        tree=tree,
        node=node,
        number=number,
        kind=kind,
        body=body,
        texts=_NO_TEXTS,
        call=call_of_row(call) if call and call[0] is not None else None,
        state=None if state is None else _STATES[state],
        question=None if question is None else load_question(question),
        settled=settled,
        at=at,
        seq=place,
    )


def call_of_row(row: Sequence[Any]) -> Call:
    """Return the call of a node; the columns are those of CALL.

    Raises:
        DamagedRowError: it has a wrong checksum.
    """
    id, drive, tree, parent, index, idles, source, inherited, function, key, crc = row
    call = Call(
        parent=parent,
        key=decode_text(key),
        index=index,
        function=decode_text(function),
        idles=idles,
        source=source,
        inherited=inherited,
    )
    if of_call(id, tree, drive, call) != crc:
        raise DamagedRowError(f"node:{id} has a wrong checksum")
    return call
