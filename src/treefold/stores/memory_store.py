"""A journal in memory, which lives as long as its object; for tests, and when no file is needed."""

import math
import threading
import uuid
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Final, Self

from treefold.core.cluster import Cluster, WorkerInfo
from treefold.core.errors import FencedError, StoreDamagedError, UnknownNodeError
from treefold.core.fact import replace
from treefold.core.question import Question
from treefold.core.sessions import Sessions
from treefold.core.states import NodeState
from treefold.core.store import LEASE, Batch, Call, Entry, Message, TreeRow
from treefold.stores.around import entries_around
from treefold.stores.errors import (
    fenced_error,
    forked_error,
    missing_call_error,
    not_owner_error,
    owned_error,
    still_open_error,
)
from treefold.stores.node_status import NodeStatus, OpenNode, parked_trees, sleeping_trees

_NAME: Final = "memory"
_MAX_BROADCASTS: Final = 1000


@dataclass(slots=True)
class _Node:
    tree: int
    call: Call
    status: NodeStatus = field(default_factory=NodeStatus)


class MemoryStore:  # noqa: PLR0904 - the contract has as many
    """A journal, and saved chats, that are gone with this object; ``close`` only ends ownership.

    Example:
        >>> from treefold import MemoryStore
        >>> with MemoryStore() as store:
        ...     store.post("hello")
        ...     [message.body for message in store.inbox()]
        True
        ['hello']
    """

    def __init__(self) -> None:
        self.id: str = uuid.uuid4().hex
        self.name: str = _NAME
        self._lock = threading.RLock()
        self.cluster: Cluster | None = None  # no other process has it
        self._owned = False
        self._last = 0
        self._highest = (0, 0)
        self._messages = 0
        self._trees: dict[int, list[Entry]] = {}
        self._nodes: dict[int, _Node] = {}
        self._keys: dict[tuple[int, str], int] = {}
        self._numbers: dict[int, set[int]] = {}
        self._texts: dict[str, str] = {}
        self._refs: dict[int, set[str]] = {}
        self._questions: dict[str, Question] = {}
        self._inbox: dict[int, tuple[Message, str | None]] = {}
        self._broadcasts: deque[tuple[int, str]] = deque(maxlen=_MAX_BROADCASTS)
        self._broadcast_count = 0
        self._sessions: Sessions | None = None

    def join(self, worker: WorkerInfo | None = None, *, lease: float = LEASE) -> bool:
        with self._lock:
            if self._owned:
                raise owned_error(_NAME)
            self._owned = True
            return False

    def leave(self) -> None:
        with self._lock:
            self._owned = False
            self._broadcasts.clear()

    def is_owned(self) -> bool:
        return self._owned

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        with self._lock:
            self._check_owned()
            return [self._append(batch.entries) for batch in batches]

    def _append(self, entries: Sequence[Entry]) -> int | FencedError:
        try:
            self._check(entries)
        except FencedError as error:
            return error
        for entry in entries:
            self._last += 1
            self._add(replace(entry, texts={}, seq=self._last), entry.texts)
        return self._last

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        with self._lock:
            entries = self._trees.get(tree, [])
            return entries[bisect_right(entries, after, key=attrgetter("seq")) :]

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        with self._lock:
            tree = self.find(node=call)
            return [] if tree is None else entries_around(self._trees[tree], call, leaving_out)

    def places(self, trees: Collection[int]) -> dict[int, int]:
        with self._lock:
            return {tree: self._trees[tree][-1].seq for tree in trees if tree in self._trees}

    def texts(self, tree: int, *, hashes: Collection[str] | None = None) -> dict[str, str]:
        with self._lock:
            known = self._refs.get(tree, set())
            wanted = known if hashes is None else known.intersection(hashes)
            return {hash: self._texts[hash] for hash in wanted}

    def text(self, hash: str, *, tree: int | None = None) -> str:
        with self._lock:
            if hash not in self._texts:
                raise StoreDamagedError(_NAME, f"the text with the hash {hash} is missing")
            return self._texts[hash]

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        with self._lock:
            opened = self._open_nodes()
            parked, asleep = parked_trees(opened), sleeping_trees(opened)
            listed = (
                (tree, top)
                for tree, top in self._tops()
                if tree > after and (open is None or (tree in parked) == open)
            )
            return [
                TreeRow(
                    id=tree,
                    number=top.call.index,
                    key=top.call.key,
                    function=top.call.function,
                    state=top.status.state,
                    open=tree in parked,
                    parked=bool(parked.get(tree)),
                    source=top.call.source,
                    started=top.status.started,
                    ended=top.status.ended,
                    last=self._last_time(tree) if tree in parked else None,
                    driven=self._owned and tree in parked,
                    asleep_until=asleep.get(tree),
                )
                for tree, top in islice(listed, limit)
            ]

    def to_resume(self, functions: Collection[str]) -> list[TreeRow]:
        opened = self.trees(open=True)
        return [row for row in opened if not row.parked or row.function not in functions]

    def find(self, *, node: int) -> int | None:
        with self._lock:
            if node in self._nodes:
                return self._nodes[node].tree
            return next(
                (id for id, top in self._tops() if id < node <= id + top.call.inherited), None
            )

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        found = {node: self.find(node=node) for node in nodes}
        return {node: tree for node, tree in found.items() if tree is not None}

    def find_key(self, key: str) -> int | None:
        with self._lock:
            return self._keys.get((0, key))

    def find_number(self, number: int | None = None) -> int | None:
        with self._lock:
            numbers = {top.call.index: id for id, top in self._tops()}
            wanted = max(numbers, default=None) if number is None else number
            return None if wanted is None else numbers.get(wanted)

    def forks(self, tree: int) -> list[int]:
        with self._lock:
            return sorted(id for id, top in self._tops() if top.call.source == tree)

    def length(self, node: int) -> int:
        with self._lock:
            return len(self._numbers.get(node, ()))

    def highest(self) -> tuple[int, int]:
        with self._lock:
            return self._highest

    def past_runs(self, function: str, limit: int) -> list[list[float]]:
        with self._lock:
            runs = [
                (node.status.ended, id)
                for id, node in self._nodes.items()
                if node.call.function == function and node.call.idles and node.status.ended
                if node.status.state is NodeState.Success
            ]
            began: dict[int, list[float]] = {id: [] for _, id in sorted(runs)[-limit:]}
            for node in self._nodes.values():
                if node.call.parent in began and node.status.started is not None:
                    began[node.call.parent].append(node.status.started)
            return [sorted(calls) for calls in began.values()]

    def last(self) -> int:
        with self._lock:
            return max((entries[-1].seq for entries in self._trees.values()), default=0)

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        with self._lock:
            posted = (
                set[str | None]()
                if answered
                else {question for _, question in self._inbox.values()}
            )
            found = [
                asked
                for id, asked in self._questions.items()
                if id not in posted and asked.asks_people and node in {None, asked.node_id}
            ]
            return found[:limit]

    def pending(self, tree: int) -> list[Question]:
        with self._lock:
            asked = self._questions.values()
            return [
                one for one in asked if one.asks_people and self._nodes[one.node_id].tree == tree
            ]

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        with self._lock:
            found = sorted(
                (asked.due, self._nodes[asked.node_id].tree)
                for asked in self._questions.values()
                if asked.due is not None and after < asked.due <= until
            )
            return found[:limit]

    def post(self, body: str, *, node: int | None = None, question: str | None = None) -> bool:
        with self._lock:
            answered = any(question == other for _, other in self._inbox.values())
            if question is not None and (answered or question not in self._questions):
                return False
            self._messages += 1
            self._inbox[self._messages] = Message(self._messages, body), question
            return True

    def inbox(self, *, drives: Collection[int] | None = None, owned: bool = False) -> list[Message]:
        with self._lock:
            return [message for message, _ in self._inbox.values()]

    def done(self, message: int) -> None:
        with self._lock:
            self._check_owned()
            self._inbox.pop(message, None)

    def broadcast(self, text: str) -> None:
        with self._lock:
            self._broadcast_count += 1
            self._broadcasts.append((self._broadcast_count, text))

    def read_broadcasts(self, after: int = 0) -> tuple[int, list[str]]:
        with self._lock:
            found = [text for number, text in self._broadcasts if number > after]
            return self._broadcast_count, found

    def delete(self, tree: int) -> None:
        with self._lock:
            self._check_owned()
            if tree not in self._trees:
                raise UnknownNodeError(f"{_NAME} has no node:{tree}")
            if any(node.tree == tree for node in self._open_nodes()):
                raise still_open_error(tree)
            if any(top.call.source == tree for _, top in self._tops()):
                raise forked_error(tree)
            for node in {entry.node for entry in self._trees.pop(tree)}:
                del self._numbers[node]
                self._settle(node)
                if (found := self._nodes.pop(node, None)) is not None:
                    del self._keys[found.call.parent, found.call.key]
            gone = self._refs.pop(tree, set())
            for hash in gone.difference(*self._refs.values()):
                del self._texts[hash]

    @property
    def sessions(self) -> Sessions:
        """The chats saved in this object."""
        from treefold.stores.database import MEMORY, Database  # noqa: PLC0415 - few need SQLite
        from treefold.stores.sessions import SqliteSessions  # noqa: PLC0415

        with self._lock:
            if self._sessions is None:
                database = Database(MEMORY)
                self._sessions = SqliteSessions(database)
                weakref.finalize(self._sessions, database.close)
            return self._sessions

    def vacuum(self) -> None:
        pass  # Python frees the memory by itself

    def close(self) -> None:
        self.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MemoryStore, {len(self._trees)} trees>"

    def _check_owned(self) -> None:
        if not self._owned:
            raise not_owner_error(_NAME)

    def _check(self, entries: Sequence[Entry]) -> None:
        """Check that all of *entries* can be written, before any is."""
        numbers: set[tuple[int, int]] = set()
        keys: set[tuple[int, str]] = set()
        nodes: set[int] = set()
        for entry in entries:
            node, number, call = entry.node, entry.number, entry.call
            if number in self._numbers.get(node, ()) or (node, number) in numbers:
                raise fenced_error(_NAME, entry)
            numbers.add((node, number))
            if call is not None:
                key = (call.parent, call.key)
                if key in self._keys or key in keys or node in self._nodes or node in nodes:
                    raise fenced_error(_NAME, entry, call)
                keys.add(key)
                nodes.add(node)
            elif entry.state is not None and node not in self._nodes and node not in nodes:
                raise missing_call_error(entry)

    def _add(self, entry: Entry, texts: Mapping[str, str]) -> None:
        node, call, state = entry.node, entry.call, entry.state
        self._trees.setdefault(entry.tree, []).append(entry)
        self._numbers.setdefault(node, set()).add(entry.number)
        if call is not None:
            self._nodes[node] = _Node(entry.tree, call)
            self._keys[call.parent, call.key] = node
            highest, number = self._highest
            if call.parent == 0:
                number = max(number, call.index)
            self._highest = (max(highest, node + call.inherited), number)
        if state is not None:
            self._nodes[node].status.update(state, entry.at)
        self._texts.update(texts)
        self._refs.setdefault(entry.tree, set()).update(texts)
        if entry.question is not None:
            self._questions.pop(entry.question.id, None)  # so that it is listed last
            self._questions[entry.question.id] = entry.question
        if entry.settled is not None:
            self._questions.pop(entry.settled, None)
        if state is not None and state.final:
            self._settle(node)

    def _settle(self, node: int) -> None:
        for asked in [one for one in self._questions.values() if one.node_id == node]:
            del self._questions[asked.id]

    def _open_nodes(self) -> list[OpenNode]:
        asked = self._questions.values()
        asking = {question.node_id for question in asked if question.asks_people}
        wakes: dict[int, float] = {}
        for question in asked:
            if question.due is not None and not question.asks_people:
                first = wakes.get(question.node_id, question.due)
                wakes[question.node_id] = min(first, question.due)
        return [
            OpenNode(node.tree, id, node.call.parent, node.call.idles, id in asking, wakes.get(id))
            for id, node in self._nodes.items()
            if not node.status.state.final
        ]

    def _last_time(self, tree: int) -> float | None:
        entries = reversed(self._trees[tree])
        return next((entry.at for entry in entries if entry.at is not None), None)

    def _tops(self) -> list[tuple[int, _Node]]:
        return [(tree, self._nodes[tree]) for tree in sorted(self._trees)]
