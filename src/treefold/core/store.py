"""The ``Store`` protocol: where a runtime writes its journal.

A journal is the ordered list of all events. A store keeps it and, in the same transaction, indexes
what has to be found without reading it: the trees, the open nodes, the pending questions. A store
handles ids, states and texts; it does not interpret them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from msgspec import field

from treefold.core.fact import Fact
from treefold.core.question import Question
from treefold.core.states import NodeState

may_block: Final[ContextVar[bool]] = ContextVar("may_block", default=True)


# A class, because every commit enters one, and a generator takes three times as long.
class nonblocking:  # noqa: N801 - it is used as a function
    """Make a store raise StoreBusyError at once instead of waiting for a lock.

    For calls on an event loop. Start no task in the block: it would inherit the setting.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = may_block.set(False)

    def __exit__(self, *_exc: object) -> None:
        may_block.reset(self._token)


class Call(Fact, frozen=True, kw_only=True):
    """How a node was called; part of its first entry.

    Attributes:
        parent: the node that made the call; 0 for a top-level call.
        key: unique among the calls of its parent.
        index: its position among them, from 1; for a top-level call, the number of its tree.
        idles: whether it does nothing of its own while one of its child calls is open.
        source: for the top-level node of a fork, the tree that was forked; otherwise 0.
        inherited: how many ids after its own belong to nodes that the fork shares.

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


class Entry(Fact, frozen=True, kw_only=True):
    """One event, as a store keeps it.

    Attributes:
        tree: the id of the top-level node.
        number: its position among the entries of its node, from 1, without a gap.
        kind: the type of the event.
        body: the event's data as JSON; long texts are referenced by their hash.
        texts: the long texts that it references, by hash; set only when it is written.
        call: set on the first entry of a node, and on no other.
        state: the new state of the node, if the event changes it.
        question: a question that is pending from now on, and replaces one with the same id. A
            question that asks no people is a call that sleeps; both may be due at some time.
        settled: the id of a question that is no longer pending; the end of a node settles all of
            its own.
        at: when it happened, in seconds since the epoch, if known.
        seq: its position in the journal; assigned by the store.

    Example:
        >>> from treefold.stores import Call, Entry, MemoryStore
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> store = MemoryStore()
        >>> _ = store.acquire()
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


def largest_part(entry: Entry) -> int:
    """Return the size in bytes of the largest part of *entry* that a store keeps in one piece."""
    sizes = [_bytes(text) for text in entry.texts.values()]
    asked, call = entry.question, entry.call
    said = ()
    if asked is not None:
        form = None if asked.form is None else {**asked.form}
        said = (json.dumps([asked.text, asked.choices, asked.default, form]),)
    sizes.append(_bytes(entry.body, *said))
    if call is not None:
        sizes.append(_bytes(call.key, call.function))
    return max(sizes)


def _bytes(*texts: str) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


class TreeRow(Fact, frozen=True, kw_only=True):
    """One row of the list of trees.

    Attributes:
        key: the key of its top-level call, as stored: ``=name``, or ``#id`` for a call without a
            key. An Observer returns the plain name.
        open: whether any of its nodes has not ended.
        parked: whether it is open, and each of its open nodes has a pending question or sleeps, or
            idles and has an open child: nothing can continue until a question is answered, or a
            time has come.
        started: when its top-level call began to run, in seconds since the epoch.
        ended: when that call ended.
        last: when its last event happened, if it is open and the time is known.
        driven: whether it is open, and a living process runs it now; in a store with one owner,
            whether there is an owner.
        owner: the name of the worker that runs it, in a store with several.
        asleep_until: when the first of its calls that sleep wakes, in seconds since the epoch.

    Example:
        >>> from treefold.stores import Call, Entry, MemoryStore
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> store = MemoryStore()
        >>> _ = store.acquire()
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
    driven: bool = False
    owner: str | None = None
    asleep_until: float | None = None


class Message(Fact, frozen=True):
    """A command that another process posted for the owner of the store.

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


class Store(Protocol):  # noqa: PLR0904 - one journal, and what is looked up in it
    """Keeps one journal; every method may be called from any thread.

    Reading needs no permission, and any number of processes may read at once. Only the owner, the
    store object that called ``acquire``, may call ``append``, ``delete`` and ``done``.

    Every method raises StoreError if the medium fails; then nothing of the call was kept.
    ``treefold.testing.StoreSuite`` tests whether a class implements this contract.

    Three attributes are optional. ``patience``: for how many seconds a failed write is retried
    before a question is asked (default 5). ``largest``: how many bytes of UTF-8 one text, or one
    entry without its texts, may have. ``sessions``: the chats saved beside the journal, a
    ``Sessions``; a Client can only save its conversation in a store that has it.

    Example:
        >>> from treefold.stores import MemoryStore, Store
        >>> store: Store = MemoryStore()
        >>> store.trees()
        []
    """

    @property
    def id(self) -> str:
        """Identifies this journal among all journals; never changes."""
        ...

    @property
    def name(self) -> str:
        """Where the journal is, for messages."""
        ...

    def acquire(self) -> bool:
        """Become the owner, the only one that may write, until ``close`` or the process ends.

        Returns:
            Whether the process of the last owner was killed, as far as that is known: it ended
            without ``close`` and without exiting normally.

        Raises:
            StoreOwnedError: the journal has an owner.
        """
        ...

    def is_owned(self) -> bool:
        """Whether the journal has an owner, in any process."""
        ...

    def append(self, entries: Sequence[Entry]) -> int:
        """Write *entries*, all or none; return the position of the last once they are durable.

        Raises:
            FencedError: a node has an entry of that number, or a parent a call of that key.
            UsageError: ``acquire`` was not called.
        """
        ...

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        """Return the entries of a tree whose position in the journal is greater than *after*."""
        ...

    def texts(self, tree: int) -> dict[str, str]:
        """Return all long texts of a tree by hash, for callers that read all of it."""
        ...

    def text(self, hash: str) -> str:
        """Return the long text with this hash.

        Raises:
            StoreDamagedError: there is none; the journal is damaged.
        """
        ...

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        """Return the trees whose id is greater than *after*, oldest first, *limit* at most.

        If *open* is given, only those that are open, or only those that are not.
        """
        ...

    def find(self, *, node: int) -> int | None:
        """Return the tree that a node belongs to; ids that a fork shares are found in the fork."""
        ...

    def find_key(self, key: str) -> int | None:
        """Return the tree whose top-level call has this key."""
        ...

    def forks(self, tree: int) -> list[int]:
        """Return the trees that were forked from *tree*, oldest first."""
        ...

    def length(self, node: int) -> int:
        """Return how many entries a node has."""
        ...

    def highest(self) -> tuple[int, int]:
        """Return the highest node id and tree number ever used, deleted ones included."""
        ...

    def past_runs(self, function: str, limit: int) -> list[list[float]]:
        """Return when the calls of earlier calls of *function* began: a list for each of these.

        They are the last *limit* calls of it that idled and ended in Success, oldest first.
        """
        ...

    def last(self) -> int:
        """Return the position of the newest entry, 0 if there is none."""
        ...

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        """Return the pending questions to people, oldest first, *limit* at most.

        If *node* is given, only those that this call asks. Those to which an answer was posted are
        pending until the owner has settled them; they are included if *answered* is set.
        """
        ...

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        """Return the times at which pending questions and sleeps are due, and their trees.

        They are greater than *after* and at most *until*, the earliest first.
        """
        ...

    def post(self, body: str, *, question: str | None = None) -> bool:
        """Post a message for the owner, from any process.

        With *question*, the message answers that question. Returns False if the question is no
        longer pending, or an answer was already posted.
        """
        ...

    def inbox(self) -> list[Message]:
        """Return the messages that are not done, oldest first."""
        ...

    def done(self, message: int) -> None:
        """Remove a message that was handled."""
        ...

    def broadcast(self, text: str) -> None:
        """Send *text* to the current observers; best effort, and not kept."""
        ...

    def read_broadcasts(self, after: int = 0) -> tuple[int, list[str]]:
        """Return the position after the newest broadcast, and the broadcasts since *after*.

        Pass the position as *after* to the next call. Old broadcasts, and those of an earlier
        owner, are gone.
        """
        ...

    def delete(self, tree: int) -> None:
        """Delete a tree, and the texts that no other tree references.

        Raises:
            UsageError: it is open, or a fork shares its calls.
            UnknownNodeError: there is no such tree.
        """
        ...

    def vacuum(self) -> None:
        """Return the space of deleted trees to the system."""
        ...

    def close(self) -> None:
        """Close the store, and give up ownership; closing twice is fine."""
        ...
