"""A journal in memory, for tests and for whoever needs no file: it lives as long as the object."""

import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from treefold.core.errors import StoreError, UnknownNodeError
from treefold.core.question import Question
from treefold.core.store import Call, Entry, Message, TreeRow
from treefold.stores.parking import OpenNode, parked
from treefold.stores.refusals import fenced, forked, not_driving, owned, still_open, without_call
from treefold.stores.standing import Standing

_NAME: Final = "memory"
_TOLD: Final = 1000  # lines


@dataclass(slots=True)
class _Node:
    tree: int
    call: Call
    standing: Standing = field(default_factory=Standing)


class MemoryStore:  # noqa: PLR0904 - the contract has as many
    """A journal that is gone with this object; ``close`` only lets another drive it.

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
        self._driving = False
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
        self._told: deque[tuple[int, str]] = deque(maxlen=_TOLD)
        self._tellings = 0

    def drive(self) -> bool:
        with self._lock:
            if self._driving:
                raise owned(_NAME)
            self._driving = True
            return False

    def is_driven(self) -> bool:
        return self._driving

    def append(self, entries: Sequence[Entry]) -> int:
        with self._lock:
            self._check_driving()
            self._check(entries)
            for entry in entries:
                self._last += 1
                self._add(replace(entry, texts={}, seq=self._last), entry.texts)
            return self._last

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        with self._lock:
            return [entry for entry in self._trees.get(tree, ()) if entry.seq > after]

    def texts(self, tree: int) -> dict[str, str]:
        with self._lock:
            return {hash: self._texts[hash] for hash in self._refs.get(tree, ())}

    def text(self, hash: str) -> str:
        with self._lock:
            if hash not in self._texts:
                raise StoreError(_NAME, f"a text is not there (hash {hash})")
            return self._texts[hash]

    def trees(self) -> list[TreeRow]:
        with self._lock:
            waiting = parked(self._open_nodes())
            return [
                TreeRow(
                    id=tree,
                    number=top.call.index,
                    key=top.call.key,
                    function=top.call.function,
                    state=top.standing.state,
                    open=tree in waiting,
                    parked=bool(waiting.get(tree)),
                    source=top.call.source,
                    started=top.standing.started,
                    ended=top.standing.ended,
                    last=self._last_time(tree) if tree in waiting else None,
                )
                for tree, top in self._tops()
            ]

    def find(self, *, node: int) -> int | None:
        with self._lock:
            if node in self._nodes:
                return self._nodes[node].tree
            return next(
                (id for id, top in self._tops() if id < node <= id + top.call.inherited), None
            )

    def find_key(self, key: str) -> int | None:
        with self._lock:
            return self._keys.get((0, key))

    def length(self, node: int) -> int:
        with self._lock:
            return len(self._numbers.get(node, ()))

    def highest(self) -> tuple[int, int]:
        with self._lock:
            return self._highest

    def last(self) -> int:
        with self._lock:
            return max((entries[-1].seq for entries in self._trees.values()), default=0)

    def questions(self) -> list[Question]:
        with self._lock:
            answered = {question for _, question in self._inbox.values()}
            return [asked for id, asked in self._questions.items() if id not in answered]

    def post(self, body: str, *, question: str | None = None) -> bool:
        with self._lock:
            answered = any(question == other for _, other in self._inbox.values())
            if question is not None and (answered or question not in self._questions):
                return False
            self._messages += 1
            self._inbox[self._messages] = Message(self._messages, body), question
            return True

    def inbox(self) -> list[Message]:
        with self._lock:
            return [message for message, _ in self._inbox.values()]

    def done(self, message: int) -> None:
        with self._lock:
            self._check_driving()
            self._inbox.pop(message, None)

    def tell(self, text: str) -> None:
        with self._lock:
            self._tellings += 1
            self._told.append((self._tellings, text))

    def told(self, after: int = 0) -> tuple[int, list[str]]:
        with self._lock:
            return self._tellings, [text for place, text in self._told if place > after]

    def delete(self, tree: int) -> None:
        with self._lock:
            self._check_driving()
            if tree not in self._trees:
                raise UnknownNodeError(f"{_NAME} has no tree {tree}")
            if any(node.tree == tree for node in self._open_nodes()):
                raise still_open(tree)
            if any(top.call.source == tree for _, top in self._tops()):
                raise forked(tree)
            for node in {entry.node for entry in self._trees.pop(tree)}:
                del self._numbers[node]
                self._settle(node)
                if (found := self._nodes.pop(node, None)) is not None:
                    del self._keys[found.call.parent, found.call.key]
            gone = self._refs.pop(tree, set())
            for hash in gone.difference(*self._refs.values()):
                del self._texts[hash]

    def vacuum(self) -> None:
        pass  # memory is given back by itself

    def close(self) -> None:
        with self._lock:
            self._driving = False
            self._told.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MemoryStore, {len(self._trees)} trees>"

    def _check_driving(self) -> None:
        if not self._driving:
            raise not_driving(_NAME)

    def _check(self, entries: Sequence[Entry]) -> None:
        """See that all of *entries* can be kept, before any is."""
        numbers: set[tuple[int, int]] = set()
        keys: set[tuple[int, str]] = set()
        nodes: set[int] = set()
        for entry in entries:
            node, number, call = entry.node, entry.number, entry.call
            if number in self._numbers.get(node, ()) or (node, number) in numbers:
                raise fenced(_NAME, entry)
            numbers.add((node, number))
            if call is not None:
                key = (call.parent, call.key)
                if key in self._keys or key in keys or node in self._nodes or node in nodes:
                    raise fenced(_NAME, entry, call)
                keys.add(key)
                nodes.add(node)
            elif entry.state is not None and node not in self._nodes and node not in nodes:
                raise without_call(entry)

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
            self._nodes[node].standing.take(state, entry.at)
        self._texts.update(texts)
        self._refs.setdefault(entry.tree, set()).update(texts)
        if entry.question is not None:
            self._questions.pop(entry.question.id, None)  # the newest comes last
            self._questions[entry.question.id] = entry.question
        if entry.settled is not None:
            self._questions.pop(entry.settled, None)
        if state is not None and state.final:
            self._settle(node)

    def _settle(self, node: int) -> None:
        for asked in [one for one in self._questions.values() if one.node_id == node]:
            del self._questions[asked.id]

    def _open_nodes(self) -> Iterable[OpenNode]:
        asking = {question.node_id for question in self._questions.values()}
        return [
            OpenNode(node.tree, id, node.call.parent, node.call.idles, id in asking)
            for id, node in self._nodes.items()
            if not node.standing.state.final
        ]

    def _last_time(self, tree: int) -> float | None:
        entries = reversed(self._trees[tree])
        return next((entry.at for entry in entries if entry.at is not None), None)

    def _tops(self) -> list[tuple[int, _Node]]:
        return [(tree, self._nodes[tree]) for tree in sorted(self._trees)]
