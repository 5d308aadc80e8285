"""Entries as the JSON that ``append`` takes, and rows of the tables as entries.

A text of PostgreSQL is valid UTF-8 without NUL. One that is not is stored as a marker and an
escaped form, so that every text comes back as it was, and equal texts are equal in the database.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from treefold.core.states import NodeState
from treefold.core.store import Call, Entry
from treefold.stores.rows import load_question

EVENTS: Final = """
    SELECT place, events.node, n, kind, body, at, events.state, question, settled,
        parent, call_key, number, function, idles, source, inherited
    FROM events LEFT JOIN nodes ON n = 1 AND nodes.id = events.node
    WHERE events.tree = %s AND place > %s ORDER BY place
"""

# json.dumps would make an encoder for each call.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
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
    return _ENCODER.encode(value)


def entry_of_row(tree: int, row: Sequence[Any]) -> Entry:
    """Return the entry of a row that EVENTS found."""
    place, node, number, kind, body, at, state, question, settled, *call = row
    return Entry(
        tree=tree,
        node=node,
        number=number,
        kind=decode_text(kind),
        body=decode_text(body),
        texts=_NO_TEXTS,
        call=None if call[0] is None else _call_of_row(call),
        state=None if state is None else _STATES[state],
        question=None if question is None else load_question(question),
        settled=None if settled is None else decode_text(settled),
        at=at,
        seq=place,
    )


def _call_of_row(row: Sequence[Any]) -> Call:
    parent, key, index, function, idles, source, inherited = row
    return Call(
        parent=parent,
        key=decode_text(key),
        index=index,
        function=decode_text(function),
        idles=idles,
        source=source,
        inherited=inherited,
    )
