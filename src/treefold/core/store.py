"""The ``Store`` protocol: where a runtime writes its journal.

A journal is the ordered list of all events. A store keeps it and, in the same transaction, indexes
what has to be found without reading it: the trees, the open nodes, the pending questions. A store
handles ids, states and texts; it does not interpret them.

A journal has one owner, or it has one for each tree: then several processes write it at once, and
the store has a ``Cluster`` (``core/cluster.py``), by which they share the work. Everything else is
the same.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from msgspec import field

from treefold.core.cluster import Cluster, Ownership, WorkerInfo
from treefold.core.errors import FencedError
from treefold.core.fact import Fact
from treefold.core.question import Question
from treefold.core.states import NodeState
from treefold.core.work_engine import Ticket

LEASE: Final = 12.0  # seconds after which a silent worker counts as dead, if it says nothing else

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
        seq: its position, assigned by the store: a number that rises within its tree. A store with
            one owner counts over all trees, a cluster within each tree.

    Example:
        >>> from treefold.stores import Batch, Call, Entry, MemoryStore
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> entry = Entry(tree=1, node=1, number=1, kind="Asked", body="{}", call=call)
        >>> store = MemoryStore()
        >>> _ = store.join()
        >>> store.append([Batch(entries=[entry])])
        [1]
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


class Batch(Fact, frozen=True, kw_only=True):
    """Entries of one drive, in order, which are written together or refused together.

    A store with one owner is one drive with all of its trees, and needs the entries only.

    Attributes:
        ownership: of the drive. An epoch of 1 and nothing written creates the drive, owned by this
            worker. In a cluster, None creates a drive without an owner: then the entries are those
            of a new tree, and *tickets* has its ticket; without one it is not owed. No worker is
            needed for that.
        written: how many entries of the drive were written before these. Entries that the store has
            already are skipped, so that a batch can be sent again after a lost connection.
        tickets: the calls among these entries that become drives of their own, owed from now on.
        drives: the calls among these entries that belong to another drive, and to which: calls
            below a remote call that its worker runs as part of the tree. A worker that
            adopts that drive later runs them, and gets the messages for them.
        reopened: calls with drives of their own that had ended, and are to be run once more. They
            are owed from now on, whoever has owned them.

    Example:
        >>> from treefold.stores import Batch, Call, Entry, Ownership
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> entry = Entry(tree=7, node=7, number=1, kind="Asked", body="{}", call=call)
        >>> batch = Batch(ownership=Ownership(7, tree=7, epoch=1), entries=[entry])
        >>> batch.written
        0
    """

    entries: Sequence[Entry]
    ownership: Ownership | None = None
    written: int = 0
    tickets: Sequence[Ticket] = ()
    drives: Mapping[int, int] = field(default_factory=dict[int, int])
    reopened: Collection[int] = ()


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
        >>> from treefold.stores import Batch, Call, Entry, MemoryStore
        >>> call = Call(parent=0, key="nightly", index=1, function="report")
        >>> entry = Entry(tree=1, node=1, number=1, kind="Asked", body="{}", call=call)
        >>> store = MemoryStore()
        >>> _ = store.join()
        >>> _ = store.append([Batch(entries=[entry])])
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
    """A command that a process posted for the owner of a drive.

    Attributes:
        drive: the topmost node of the drive; 0 in a store with one owner.

    Example:
        >>> from treefold.stores import MemoryStore
        >>> store = MemoryStore()
        >>> store.post("stop", node=7)
        True
        >>> store.inbox()
        [Message(id=1, body='stop', drive=0)]
    """

    id: int
    body: str
    drive: int = 0


class Store(Protocol):  # noqa: PLR0904 - one journal, and what is looked up in it
    """Keeps one journal; every method may be called from any thread.

    Reading and posting need no permission, and any number of processes may do so at once. What is
    written needs an owner: the store object that called ``join``, or in a cluster the worker that
    has adopted the drive.

    Every method may wait for a disk or a network. In a cluster none is called on an event loop,
    except ``broadcast``, which only queues. Every method raises StoreError if the medium fails;
    then nothing of the call was kept. ``treefold.testing.StoreSuite`` tests whether a class
    implements this contract.

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

    @property
    def cluster(self) -> Cluster | None:
        """What the processes that write this journal share; None if it has one owner at a time."""
        ...

    def join(self, worker: WorkerInfo | None = None, *, lease: float = LEASE) -> bool:
        """Become the owner of the journal, or one of the workers of its cluster, until ``leave``.

        In a cluster *worker* tells the others about this one, which counts as dead *lease* seconds
        after its last heartbeat. An owner ends with its process, and needs neither.

        Returns:
            Whether the process of the last owner was killed, as far as that is known: it ended
            without ``leave`` and without exiting normally. False in a cluster.

        Raises:
            StoreOwnedError: the journal has an owner, this object for example.
            UsageError: this object is a worker of the cluster already.
        """
        ...

    def leave(self) -> None:
        """Give up all that ``join`` and ``adopt`` gave; in a cluster, open drives are owed then."""
        ...

    def is_owned(self) -> bool:
        """Whether the journal has an owner, or a living worker, in any process."""
        ...

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        """Write *batches*, each all or none, in one transaction unless one is refused.

        A batch is refused if a node has an entry of that number, or a parent a call of that key,
        and in a cluster if another worker has adopted its drive.

        Returns:
            For each batch the position of its last entry once it is durable, or why it was refused.

        Raises:
            UsageError: ``join`` was not called; the first entry of a node has no call; or in a
                cluster, entries of a batch belong to different trees. Nothing is written.
        """
        ...

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        """Return the entries of a tree whose position is greater than *after*."""
        ...

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        """Return the entries of a call, of all calls below it, and of those above it.

        Entries of the calls above, if they are of the kinds *leaving_out*, are not returned. All
        are in the order of their positions.
        """
        ...

    def places(self, trees: Collection[int]) -> dict[int, int]:
        """Return the position of the last entry of each of these trees, by tree."""
        ...

    def texts(self, tree: int, *, hashes: Collection[str] | None = None) -> dict[str, str]:
        """Return the long texts of a tree by hash: all, or those with *hashes* that it has."""
        ...

    def text(self, hash: str, *, tree: int | None = None) -> str:
        """Return the long text with this hash; it may be found sooner in a given *tree*.

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

    def to_resume(self, functions: Collection[str]) -> list[TreeRow]:
        """Return the open trees that a new owner with these *functions* has to look at.

        They are those that are not parked, and those of other functions, oldest first. Parked trees
        are not read: there may be any number of them.
        """
        ...

    def find(self, *, node: int) -> int | None:
        """Return the tree that a node belongs to; ids that a fork shares are found in the fork."""
        ...

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        """Return what ``find`` finds for several nodes, by node, without those it does not find."""
        ...

    def find_key(self, key: str) -> int | None:
        """Return the tree whose top-level call has this key."""
        ...

    def find_number(self, number: int | None = None) -> int | None:
        """Return the tree with this number, or without one the tree with the highest."""
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
        """Return a number that grows when something was written, and in a cluster when posted.

        It may grow for other reasons as well, and need not be the position of an entry.
        """
        ...

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        """Return the pending questions to people, oldest first, *limit* at most.

        If *node* is given, only those that this call asks. Those to which an answer was posted are
        pending until the owner has settled them; they are included if *answered* is set.
        """
        ...

    def pending(self, tree: int) -> list[Question]:
        """Return the pending questions of a tree, with those to which an answer was posted."""
        ...

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        """Return the times at which pending questions and sleeps are due, and their trees.

        They are greater than *after* and at most *until*, the earliest first.
        """
        ...

    def post(self, body: str, *, node: int | None = None, question: str | None = None) -> bool:
        """Post a message for the owner of the drive that *node* belongs to, from any process.

        A drive without an owner is wanted then. With *question*, the message answers that question,
        and goes to its node unless another is given. A store with one owner needs neither.

        Returns:
            False if the question is no longer pending, or an answer was already posted.

        Raises:
            UnknownNodeError: a cluster has no such node.
            UsageError: a cluster is given neither.
        """
        ...

    def inbox(self, *, drives: Collection[int] | None = None, owned: bool = False) -> list[Message]:
        """Return the messages that are not done, oldest first.

        In a cluster only those for these *drives*, if they are given, and if *owned* is set only
        those for drives that this worker owns: what it has lost without having heard of it, its new
        owner handles.
        """
        ...

    def done(self, message: int) -> None:
        """Remove a message that was handled; it stays if this is no longer the owner of its drive.

        Raises:
            UsageError: ``join`` was not called.
        """
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
        """Close the store, after ``leave``; closing twice is fine."""
        ...
