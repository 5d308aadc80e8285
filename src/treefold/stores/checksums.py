"""The checksums of the rows of a journal: the CRC-32 of what each row says.

A database reports a damaged page only if its structure is damaged. What is changed later, such as
the state of a node, has a checksum of its own: writing it anew must not hide damage to the rest.
"""

from struct import Struct
from typing import Final
from zlib import crc32

from treefold.core.store import Call

# Packing numbers is faster than formatting them as text; and a checksum is computed for each row
# that is read, so each takes as few calls as possible.
_pack_event: Final = Struct("<qqqqd").pack
_pack_call: Final = Struct("<qqqqqqqq").pack
_pack_time: Final = Struct("<qd").pack
_pack_question: Final = Struct("<qq").pack
_NEVER: Final = -1.0  # in the place of a time


class DamagedRowError(Exception):
    """A row does not say what was written; the message says which."""


def of_event(  # noqa: PLR0913 - one for each column
    place: int,
    tree: int,
    node: int,
    number: int,
    kind: str,
    body: str,
    at: float | None,
    state: str | None,
    question: str | None,
    settled: str | None,
) -> int:
    """Return the checksum of an event; *place* is 0 if the database decides on it."""
    numbers = _pack_event(place, tree, node, number, _NEVER if at is None else at)
    return _of(f"{kind} {state} {settled} {question} {body}", numbers)


def of_call(node: int, tree: int, place: int, call: Call) -> int:
    """Return the checksum of what a node says about its call; *place* is where it belongs."""
    numbers = (call.parent, call.index, int(call.idles), call.source, call.inherited)
    return of_call_columns(node, tree, place, *numbers, call.function, call.key)


def of_call_columns(  # noqa: PLR0913 - one for each column
    node: int,
    tree: int,
    place: int,
    parent: int,
    index: int,
    idles: int,
    source: int,
    inherited: int,
    function: str,
    key: str,
) -> int:
    """Return the checksum of a call, as it is in the database."""
    numbers = _pack_call(node, tree, place, parent, index, idles, source, inherited)
    return _of(f"{function} {key}", numbers)


def of_state(node: int, state: str, ended: float | None) -> int:
    """Return the checksum of the state of a node, and of when it ended."""
    return _of(state, _pack_time(node, _NEVER if ended is None else ended))


def of_start(node: int, started: float | None) -> int | None:
    """Return the checksum of when a node started; None if it has not."""
    return None if started is None else crc32(_pack_time(node, started))


def of_text(hash: str, text: bytes) -> int:
    """Return the checksum of a long text."""
    return crc32(text, crc32(hash.encode("utf-8", "surrogatepass")))


def of_question(node: int, id: str, place: int) -> int:
    """Return the checksum of a pending question."""
    return _of(id, _pack_question(node, place))


def of_timer(node: int, id: str, due: float, *, sleeps: bool) -> int:
    """Return the checksum of a timer."""
    return _of(f"{int(sleeps)} {id}", _pack_time(node, due))


def of_pending(id: str, node: int, tree: int, due: float | None, *, asks: bool) -> int:
    """Return the checksum of a pending question, or of a sleep, that has a timer if it is due."""
    numbers = _pack_time(node, _NEVER if due is None else due)
    return _of(f"{tree} {int(asks)} {id}", numbers)


def of_message(id: int, body: str, question: str | None) -> int:
    """Return the checksum of a message to an owner; *id* is 0 if the database decides on it."""
    return _of(f"{id} {question} {body}")


def of_journal(id: str, place: int, node: int, number: int) -> int:
    """Return the checksum of the row about the journal itself."""
    return _of(f"{id} {place} {node} {number}")


def _of(text: str, numbers: bytes = b"") -> int:
    try:
        return crc32(text.encode(), crc32(numbers))
    except UnicodeEncodeError:
        return crc32(text.encode("utf-8", "surrogatepass"), crc32(numbers))
