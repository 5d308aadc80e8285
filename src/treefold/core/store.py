"""What a journal is kept in: the contract of every store.

A journal is the list of all that happened, in order. A store keeps it and, in the same transaction,
what has to be found without reading it: which trees there are, what is open, which questions wait.
It knows numbers and texts, and nothing of what they mean.
"""

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, dataclass_transform

from treefold.core.question import Question
from treefold.core.states import NodeState

T = TypeVar("T")

may_wait: Final[ContextVar[bool]] = ContextVar("may_wait", default=True)


class without_waiting:  # noqa: N801 - it is used as a function
    """Have a store raise StoreBusyError at once where it would wait for the lock of another.

    For calls on an event loop. Nothing else may be done meanwhile: tasks inherit this. A class,
    since every commit enters one, and a generator takes three times as long.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = may_wait.set(False)

    def __exit__(self, *_exc: object) -> None:
        may_wait.reset(self._token)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _kept(cls: type[T]) -> type[T]:
    """Make a dataclass that the type checker holds to be frozen, as ``events.fact`` does."""
    return dataclass(slots=True, kw_only=True)(cls)


@_kept
class Call:
    """What a node is found by; part of its first entry.

    Attributes:
        parent: the node that made the call; 0 for a top-level call.
        key: what tells it from the other calls of its parent.
        index: its place among them, from 1; of a top-level call, the number of its tree.
        idles: whether it does nothing of its own while a call that it made is open.
        source: of the top-level node of a fork, the tree that it goes on from; otherwise 0.
        inherited: how many ids after its own belong to nodes that the fork took over.

    Example:
        >>> from treefold.stores import Call
        >>> Call(parent=0, key="nightly", index=1, function="report").source
        0
    """

    parent: int
    key: str
    index: int
    function: str
    idles: bool = False
    source: int = 0
    inherited: int = 0


@_kept
class Entry:
    """One event, as it is kept.

    Attributes:
        tree: the id of the top-level node.
        number: its place among the entries of its node, from 1, without a gap.
        kind: what happened.
        body: the rest, as JSON; long texts are referred to by their hash.
        texts: the long texts that it refers to, by their hash; only when it is written.
        call: with the first entry of a node, and no other.
        state: the state of the node from now on, if that changes.
        question: one that waits for an answer from now on.
        settled: the id of one that does so no longer; the end of a node settles all of its own.
        at: when it happened, in seconds since the epoch, if that is known.
        seq: its place in the journal; the store gives it.

    Example:
        >>> from treefold.stores import Call, Entry, MemoryStore
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> store = MemoryStore()
        >>> _ = store.drive()
        >>> store.append([Entry(tree=1, node=1, number=1, kind="Asked", body="{}", call=call)])
        1
        >>> store.entries(1)[0].kind
        'Asked'
    """

    tree: int
    node: int
    number: int
    kind: str
    body: str
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    call: Call | None = None
    state: NodeState | None = None
    question: Question | None = None
    settled: str | None = None
    at: float | None = None
    seq: int = 0


def size_of(entry: Entry) -> int:
    """Return the bytes of the largest part of *entry*, of those that a store keeps in one piece."""
    sizes = [_bytes(text) for text in entry.texts.values()]
    asked, call = entry.question, entry.call
    said = () if asked is None else (json.dumps([asked.text, asked.choices]),)
    sizes.append(_bytes(entry.body, *said))
    if call is not None:
        sizes.append(_bytes(call.key, call.function))
    return max(sizes)


def _bytes(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """A tree in a list of them.

    Attributes:
        key: of its top-level call, as it is kept: ``=name``, or ``#id`` if it was given none. An
            Observer gives the name itself.
        open: whether any node of it has not ended.
        parked: whether it is open, and each of its open nodes has a question that waits, or idles
            and has an open child: nothing can go on in it until somebody answers.
        started: when its top-level call began to run, in seconds since the epoch.
        ended: when that call ended.
        last: when its last event happened, if it is open, and that is known.

    Example:
        >>> from treefold.stores import Call, Entry, MemoryStore
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> store = MemoryStore()
        >>> _ = store.drive()
        >>> _ = store.append([Entry(tree=1, node=1, number=1, kind="Asked", body="{}", call=call)])
        >>> [(tree.key, tree.state.name, tree.open) for tree in store.trees()]
        [('nightly', 'Waiting', True)]
    """

    id: int
    number: int
    key: str
    function: str
    state: NodeState
    open: bool
    parked: bool
    source: int
    started: float | None = None
    ended: float | None = None
    last: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What another process wants of the driver.

    Example:
        >>> from treefold.stores import MemoryStore
        >>> store = MemoryStore()
        >>> store.post("stop")
        True
        >>> store.inbox()
        [Message(id=1, body='stop')]
    """

    id: int
    body: str


class Store(Protocol):  # noqa: PLR0904 - one journal, and what is found in it
    """Keeps one journal; every method may be called from any thread.

    Reading needs no permission, and any number of processes may read at once; ``append``,
    ``delete`` and ``done`` are for the driver.

    Every method raises StoreError if the medium fails; then nothing of the call was kept.
    ``treefold.testing.StoreSuite`` tests whether a class does all that is said here.

    A store may have the attribute ``patience``: for how many seconds a write that failed is retried
    before a person is asked. Without it that is 5. And the attribute ``largest``: how many bytes of
    UTF-8 one text, or one entry without its texts, may have.

    Example:
        >>> from treefold.stores import MemoryStore, Store
        >>> store: Store = MemoryStore()
        >>> store.trees()
        []
    """

    @property
    def id(self) -> str:
        """What tells this journal from every other, for ever."""
        ...

    @property
    def name(self) -> str:
        """Where it is, for messages."""
        ...

    def drive(self) -> bool:
        """Become the only one that may write, until ``close`` or the end of the process.

        Returns:
            Whether the process of the last driver was killed, as far as that is known: it ended
            without ``close`` and without ending in order.

        Raises:
            StoreOwnedError: another is.
        """
        ...

    def is_driven(self) -> bool:
        """Whether somebody may write now, in whichever process."""
        ...

    def append(self, entries: Sequence[Entry]) -> int:
        """Keep *entries*, all or none, and return the place of the last when they are safe.

        Raises:
            FencedError: a node has an entry of that number, or a parent a call of that key.
            UsageError: ``drive`` was not called.
        """
        ...

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        """Return the entries of a tree whose place in the journal is later than *after*."""
        ...

    def texts(self, tree: int) -> dict[str, str]:
        """Return all long texts of a tree by their hash, for who reads all of it."""
        ...

    def text(self, hash: str) -> str:
        """Return the long text that has this hash.

        Raises:
            StoreError: there is none; the journal is damaged.
        """
        ...

    def trees(self) -> list[TreeRow]:
        """Return all trees, oldest first."""
        ...

    def find(self, *, node: int) -> int | None:
        """Return the tree that a node is in, ids taken over by a fork included."""
        ...

    def find_key(self, key: str) -> int | None:
        """Return the tree whose top-level call has this key."""
        ...

    def length(self, node: int) -> int:
        """Return how many entries a node has."""
        ...

    def highest(self) -> tuple[int, int]:
        """Return the highest node id and tree number ever used, deleted ones included."""
        ...

    def last(self) -> int:
        """Return the place of the newest entry, 0 if there is none."""
        ...

    def questions(self) -> list[Question]:
        """Return the questions that wait and that nobody has posted an answer to, oldest first."""
        ...

    def post(self, body: str, *, question: str | None = None) -> bool:
        """Leave a message for the driver, from any process.

        With *question*, it answers that one: False if the question does not wait any longer, or
        somebody has answered it already.
        """
        ...

    def inbox(self) -> list[Message]:
        """Return the messages that are not done, oldest first."""
        ...

    def done(self, message: int) -> None:
        """Forget a message that was followed."""
        ...

    def tell(self, text: str) -> None:
        """Let those know *text* who look on just now; it is not kept, and may be lost."""
        ...

    def told(self, after: int = 0) -> tuple[int, list[str]]:
        """Return what was told since *after*, and what to give as that the next time.

        What was told long ago, or by an earlier driver, is gone.
        """
        ...

    def delete(self, tree: int) -> None:
        """Forget a tree, and the texts that no other has.

        Raises:
            UsageError: it is open, or a fork goes on from it.
            UnknownNodeError: there is no such tree.
        """
        ...

    def vacuum(self) -> None:
        """Give back the room that deleted trees took."""
        ...

    def close(self) -> None:
        """Let go of it; closing twice is fine."""
        ...
