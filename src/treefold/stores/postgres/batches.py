"""Writes entries: one call of the function ``append`` for the batches of all drives.

The database accepts a call as a whole or not at all, which is quick. If it refuses one, each of its
batches is written by itself, and the drive tells whether the batch was written before, belongs to
another worker now, or is in conflict with something.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from treefold.core.errors import FencedError, UsageError
from treefold.core.fact import replace
from treefold.core.function import DEFAULT_QUEUE
from treefold.core.question import QuestionKind
from treefold.core.store import Batch, Entry
from treefold.core.work_engine import Ticket
from treefold.stores.checksums import of_call, of_event, of_pending, of_start, of_state, of_text
from treefold.stores.errors import fenced_error, missing_call_error
from treefold.stores.node_status import NodeStatus
from treefold.stores.postgres.faults import MISSING_CALL, MISSING_SOURCE
from treefold.stores.postgres.pool import Pool, Refused
from treefold.stores.postgres.rows import compact, encode_text, pack_hash
from treefold.stores.rows import dump_question

_APPEND: Final = """
    SELECT trees, bases FROM append(
        %s::bigint, %s::bigint[], %s::bigint[], %s::json, %s::json, %s::json, %s::json,
        %s::bigint[], %s::json, %s::json, %s::json, %s::json, %s::bytea, %s::bigint[], %s::json,
        %s::json
    )
"""
_MANY: Final = 200  # batches in one call
_LARGE: Final = 32_000_000  # characters in one call
_REMEMBERED: Final = 1000  # texts that need not be sent again

Key = tuple[int, str]  # a tree, and the hash of a text in it


@dataclass(frozen=True, slots=True)
class _Drive:
    """A drive as the database has it."""

    epoch: int
    owner: int | None
    written: int


class BatchWriter:
    """Writes the batches of one worker; safe to use from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._name = pool.address.name
        self._lock = threading.Lock()
        self._texts: dict[Key, None] = {}  # the texts that were written lately

    def write(self, worker: int, batches: Sequence[Batch]) -> list[int | FencedError]:
        """Write *batches*; return the place of the last entry of each, or why it was refused."""
        for batch in batches:
            _check(batch)
        outcomes: list[int | FencedError] = [0] * len(batches)
        wanted = [number for number, batch in enumerate(batches) if batch.entries]
        for numbers in _portions(batches, wanted):
            together = [batches[number] for number in numbers]
            for number, outcome in zip(numbers, self._portion(worker, together), strict=True):
                outcomes[number] = outcome
        return outcomes

    def _portion(self, worker: int, batches: Sequence[Batch]) -> Sequence[int | FencedError]:
        try:
            return self._call(worker, batches)
        except Refused as error:
            if error.code == MISSING_CALL:
                raise missing_call_error(self._uncalled(batches)) from None
        # Every one in a transaction of its own, so that one conflict undoes no other.
        return [self._alone(worker, batch) for batch in batches]

    def _call(self, worker: int, batches: Sequence[Batch]) -> list[int]:
        call = _Call(worker, self._texts)
        for batch in batches:
            call.add(batch)
        if call.size > _LARGE:
            for (tree, hash), text in call.take_texts():
                packed = (tree, pack_hash(hash), text, of_text(hash, text))
                self._pool.fetch("SELECT add_text(%s::bigint, %s, %s, %s::bigint)", packed)
        [(trees, bases)] = self._pool.fetch(_APPEND, call.values())
        known: dict[int, int] = dict(zip(trees or [], bases or [], strict=True))
        self._remember(call.texts)
        return [known.get(tree, 0) + place for tree, place in call.ends]

    def _remember(self, texts: Iterable[Key]) -> None:
        with self._lock:
            if len(self._texts) > _REMEMBERED:
                # Another thread may be looking at the former one.
                self._texts = {}
            self._texts.update(dict.fromkeys(texts))

    # Batches that were refused together

    def _alone(self, worker: int, batch: Batch) -> int | FencedError:
        """Write what the database does not have of a batch, or return why it is refused."""
        own = batch.ownership
        node = batch.entries[0].tree if own is None else own.node
        drive = self._drive(node)
        if drive is None:
            if not _is_new(batch):
                return self._fenced(f"node:{node} does not exist; its tree may have been deleted")
        elif own is None:
            # It was written, and the reply was lost.
            return self._place(batch.entries[-1]) or self._fenced(f"there already is a node:{node}")
        elif (drive.owner, drive.epoch) != (worker, own.epoch):
            return self._fenced(f"node:{node} was released, or another worker has adopted it")
        elif drive.written < batch.written:
            return self._fenced(
                f"node:{node} has {drive.written} entries where {batch.written} were written"
            )
        elif skipped := batch.entries[: drive.written - batch.written]:
            if not (place := self._place(skipped[-1])):
                return self._fenced(f"node:{node} has other entries than were written")
            batch = _without(batch, len(skipped))
            if not batch.entries:
                return place
        try:
            return self._call(worker, [batch])[0]
        except Refused as error:
            return self._conflict(batch, error)

    def _drive(self, node: int) -> _Drive | None:
        found = self._pool.fetch(
            "SELECT epoch, owner, written FROM drives WHERE node = %s", (node,)
        )
        return _Drive(*found[0]) if found else None

    def _place(self, entry: Entry) -> int:
        found = self._pool.fetch(
            "SELECT place FROM events WHERE node = %s AND n = %s", (entry.node, entry.number)
        )
        return found[0][0] if found else 0

    def _conflict(self, batch: Batch, error: Refused) -> FencedError:
        """Return the error for the entry whose number or call is taken."""
        if error.code == MISSING_CALL:
            raise missing_call_error(self._uncalled([batch])) from None
        if error.code == MISSING_SOURCE:
            return self._fenced("the tree that it is a fork of was deleted")
        for entry in batch.entries:
            if self._place(entry):
                return fenced_error(self._name, entry)
            if (call := entry.call) is not None and self._pool.fetch(
                "SELECT 1 FROM nodes WHERE id = %s OR (parent = %s AND call_key = %s)",
                (entry.node, call.parent, encode_text(call.key)),
            ):
                return fenced_error(self._name, entry, call)
        return self._fenced(f"entries of node:{batch.entries[0].tree} were written meanwhile")

    def _uncalled(self, batches: Sequence[Batch]) -> Entry:
        """Return an entry of a node that has no call."""
        entries = [entry for batch in batches for entry in batch.entries]
        called = {entry.node for entry in entries if entry.call is not None}
        for entry in entries:
            if entry.node not in called and not self._pool.fetch(
                "SELECT 1 FROM nodes WHERE id = %s", (entry.node,)
            ):
                return entry
        return entries[0]

    def _fenced(self, why: str) -> FencedError:
        return FencedError(self._name, why)


class _Call:
    """The arguments of one call of ``append``.

    Attributes:
        size: how many characters it has, about.
        texts: the texts in it.
        ends: for each batch its tree, and the place of its last entry after those the tree has.
    """

    def __init__(self, worker: int, known: dict[Key, None]) -> None:
        self._worker = worker
        self._known = known
        self.size = 0
        self.texts: dict[Key, bytes] = {}
        self.ends: list[tuple[int, int]] = []
        self._places: dict[int, int] = {}  # how far each tree advances
        self._created: list[dict[str, Any]] = []
        self._batches: list[dict[str, Any]] = []
        self._tickets: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._changes: dict[int, NodeStatus] = {}
        self._sources: set[int] = set()
        self._closed: set[int] = set()
        self._reopened: set[int] = set()
        self._settled: dict[str, None] = {}
        self._asked: dict[str, dict[str, Any]] = {}

    def add(self, batch: Batch) -> None:
        entries, ownership = batch.entries, batch.ownership
        tree = entries[0].tree
        drive = tree if ownership is None else ownership.node
        remote = {ticket.node for ticket in batch.tickets} - {tree}
        progress = False
        for entry in entries:
            own = entry.node if entry.node in remote else batch.drives.get(entry.node, drive)
            self._add_entry(entry, own)
            progress = progress or (entry.state is not None and entry.state.final)
        self.ends.append((tree, self._places[tree]))
        self._reopened.update(batch.reopened)
        self._tickets += [
            {"tree": tree, **_ticket(ticket)} for ticket in batch.tickets if ticket.node in remote
        ]
        row = {"node": drive, "count": len(entries)}
        if ownership is None or _is_new(batch):
            given = next((ticket for ticket in batch.tickets if ticket.node == tree), None)
            owner = None if ownership is None else self._worker
            row |= _ticket(given or Ticket(node=tree))
            row |= {"owner": owner, "wanted": owner is not None or given is not None}
            self._created.append(row)
        else:
            row |= {"epoch": ownership.epoch, "written": batch.written, "progress": progress}
            self._batches.append(row)

    def _add_entry(self, entry: Entry, drive: int) -> None:
        tree, node, call, state = entry.tree, entry.node, entry.call, entry.state
        place = self._places[tree] = self._places.get(tree, 0) + 1
        body = encode_text(entry.body)
        self.size += len(body)
        row: dict[str, Any] = {
            "tree": tree,
            "place": place,
            "node": node,
            "n": entry.number,
            "kind": encode_text(entry.kind),
            "body": body,
            "at": entry.at,
        }
        self._events.append(row)
        if call is not None:
            self._calls[node] = {
                "id": node,
                "tree": tree,
                "drive": drive,
                "parent": call.parent,
                "call_key": encode_text(call.key),
                "number": call.index,
                "function": encode_text(call.function),
                "idles": call.idles,
                "source": call.source,
                "inherited": call.inherited,
                "crc": of_call(node, tree, drive, call),
            }
            if call.source:
                self._sources.add(call.source)
        if state is not None:
            row["state"] = state.value
            if (change := self._changes.get(node)) is None:
                change = self._changes[node] = NodeStatus()
            change.update(state, entry.at)
        for hash, text in entry.texts.items():
            if (key := (tree, hash)) not in self._known and key not in self.texts:
                encoded = self.texts[key] = text.encode("utf-8", "surrogatepass")
                self.size += len(encoded)
        self._add_question(entry, row)
        question, settled = row.get("question"), entry.settled
        row["crc"] = of_event(
            0, tree, node, entry.number, entry.kind, entry.body, entry.at, row.get("state"),
            question, settled,
        )  # fmt: skip

    def _add_question(self, entry: Entry, row: dict[str, Any]) -> None:
        if (question := entry.question) is not None:
            row["question"] = dump_question(question)
            id = encode_text(question.id)
            self._asked[id] = {
                "id": id,
                "node": entry.node,
                "tree": entry.tree,
                "place": row["place"],
                "asks": question.asks_people,
                "in_doubt": question.kind is QuestionKind.InDoubt,
                "due": question.due,
                "crc": of_pending(
                    question.id, entry.node, entry.tree, question.due, asks=question.asks_people
                ),
            }
        if entry.settled is not None:
            id = row["settled"] = encode_text(entry.settled)
            self._settled[id] = None
            self._asked.pop(id, None)
        if entry.state is not None and entry.state.final:
            self._closed.add(entry.node)
            self._asked = {id: one for id, one in self._asked.items() if one["node"] != entry.node}

    def take_texts(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the texts, so that the call is made without them."""
        for key, text in self.texts.items():
            yield key, text
            self.texts[key] = b""

    def values(self) -> tuple[Any, ...]:
        """Return the arguments, in order."""
        own = {row["node"] for row in (*self._created, *self._batches)}
        for row in (*self._created, *self._batches):
            row["advance"] = self._places.get(row["node"], 0)
        others = [
            {"tree": tree, "advance": count}
            for tree, count in self._places.items()
            if tree not in own
        ]
        locked = sorted({row["node"] for row in self._batches} | {row["tree"] for row in others})
        texts, blob = self._packed_texts()
        return (
            self._worker,
            _array(locked) if len(locked) > 1 else None,
            _array(self._sources - {row["node"] for row in self._created}),
            _rows(self._created),
            _rows(self._batches),
            _rows(others),
            _rows(self._tickets),
            _array(self._reopened),
            compact(self._events),
            _rows(list(map(self._node_row, self._calls))),
            _rows([
                {"id": node, **_status(node, status)}
                for node, status in self._changes.items()
                if node not in self._calls
            ]),
            texts,
            blob,
            _array(self._closed),
            _rows(list(self._settled)),
            _rows(list(self._asked.values())),
        )

    def _node_row(self, node: int) -> dict[str, Any]:
        return self._calls[node] | _status(node, self._changes.get(node) or NodeStatus())

    def _packed_texts(self) -> tuple[str | None, bytes | None]:
        rows: list[dict[str, Any]] = []
        start = 1  # where SQL begins to count
        for (tree, hash), text in self.texts.items():
            length = len(text)
            packed = pack_hash(hash).hex()
            crc = of_text(hash, text)
            rows.append({
                "tree": tree, "hash": packed, "start": start, "length": length, "crc": crc
            })  # fmt: skip
            start += length
        return _rows(rows), b"".join(self.texts.values()) if rows else None


def _check(batch: Batch) -> None:
    """Check that all entries of a batch belong to the tree of its drive."""
    trees = {entry.tree for entry in batch.entries}
    if batch.ownership is not None:
        trees.add(batch.ownership.tree)
    if len(trees) > 1:
        raise UsageError(f"a batch must have entries of one tree, got {sorted(trees)}")


def _is_new(batch: Batch) -> bool:
    """Whether the batch creates its drive, which is that of a whole tree."""
    own = batch.ownership
    if own is None:
        return True
    return own.epoch == 1 and own.node == own.tree and not own.written and not batch.written


def _without(batch: Batch, count: int) -> Batch:
    """Return *batch* without its first *count* entries, and what concerns their calls."""
    entries, written = batch.entries[count:], batch.written + count
    called = {entry.node for entry in entries if entry.call is not None}
    tickets = [ticket for ticket in batch.tickets if ticket.node in called]
    reopened = set(batch.reopened).intersection(entry.node for entry in entries)
    return replace(batch, entries=entries, tickets=tickets, reopened=reopened, written=written)


def _portions(batches: Sequence[Batch], wanted: Sequence[int]) -> Iterator[list[int]]:
    """Divide the batches into calls that are not too large, sorted by tree."""
    if len(wanted) == 1:
        yield [*wanted]
        return
    portion: list[int] = []
    size = 0
    for number in sorted(wanted, key=lambda number: batches[number].entries[0].tree):
        its_size = sum(_size(entry) for entry in batches[number].entries)
        if portion and (len(portion) == _MANY or size + its_size > _LARGE):
            yield portion
            portion, size = [], 0
        portion.append(number)
        size += its_size
    if portion:
        yield portion


def _size(entry: Entry) -> int:
    return len(entry.body) + sum(map(len, entry.texts.values()))


def _ticket(ticket: Ticket) -> dict[str, Any]:
    return {
        "node": ticket.node,
        "queue": encode_text(ticket.queue or DEFAULT_QUEUE),
        "priority": ticket.priority,
        "not_before": ticket.not_before,
    }


def _status(node: int, status: NodeStatus) -> dict[str, Any]:
    state, started, ended = status.state.value, status.started, status.ended
    return {
        "state": state,
        "open": not status.state.final,
        "ended": ended,
        "state_crc": of_state(node, state, ended),
        "started": started,
        "started_crc": of_start(node, started),
    }


def _rows(rows: Sequence[Any]) -> str | None:
    return compact(rows) if rows else None


def _array(numbers: Iterable[int]) -> str | None:
    # psycopg dumps a list element by element, which takes longer than the whole statement.
    text = ",".join(map(str, numbers))
    return f"{{{text}}}" if text else None
