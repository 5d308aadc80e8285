"""A journal and saved chats in a schema of a PostgreSQL database.

The store has a few connections of its own, one more if it takes slots, and up to two threads: one
sends notifications after commits, one receives those of other processes. It does not interpret the
entries.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Final, Self
from uuid import UUID

from treefold.core.errors import FencedError, StoreError, UnknownNodeError, UsageError
from treefold.core.question import Question
from treefold.core.rate import Rate
from treefold.core.sessions import Sessions
from treefold.core.shared_store import (
    Batch,
    Estimate,
    Load,
    Orders,
    Overdrawn,
    Owed,
    Ownership,
    StoredAccount,
    Subscription,
    TakenSlots,
    Ticket,
    WorkerInfo,
    WorkerRow,
)
from treefold.core.store import Entry, Message, TreeRow
from treefold.stores.errors import forked_error, still_open_error
from treefold.stores.postgres.address import TIMEOUT, parse_url
from treefold.stores.postgres.batches import BatchWriter
from treefold.stores.postgres.faults import FORKED, STILL_OPEN, UNKNOWN_NODE
from treefold.stores.postgres.membership import Membership
from treefold.stores.postgres.messages import Mailbox, unaddressed_error
from treefold.stores.postgres.migration import open_journal
from treefold.stores.postgres.pool import Pool, Refused
from treefold.stores.postgres.reading import JournalReader
from treefold.stores.postgres.rows import decode_text
from treefold.stores.postgres.sessions import PostgresSessions
from treefold.stores.postgres.signals import Listener, Notifier, channel_of
from treefold.stores.postgres.slots import SlotSession
from treefold.stores.postgres.spending import Spending

log = logging.getLogger(__name__)

PATIENCE: Final = 30.0  # seconds; a server that is restarted, or replaced, is back by then
_LARGEST: Final = 128 * 1024 * 1024  # bytes; PostgreSQL's limit for one message is 1 GB
_WATCH: Final = 3.0  # seconds after which a reader of broadcasts is announced again


class PostgresStore:  # noqa: PLR0904 - the contract has as many
    """A journal, and saved chats, in PostgreSQL; processes of any machine may write it at once.

    Args:
        url: such as ``postgresql://user:password@host:5432/database``. The parameter ``schema``
            names the schema that has the tables, ``treefold`` by default. A server on another
            machine must prove who it is, unless ``sslmode`` says otherwise.
        create: whether the tables are created if they are missing, and the role may do so.
        patience: how many seconds a failed write is retried before a question is asked.
        timeout: how many seconds may pass without a reply before a connection counts as lost.

    Raises:
        StoreError: from every method, if the server cannot be reached or refuses something.

    Example:
        >>> from treefold import StoreError
        >>> from treefold.stores.postgres import PostgresStore
        >>> try:
        ...     PostgresStore("postgresql://reader:secret@127.0.0.1:1/journals")
        ... except StoreError as error:
        ...     print(error)
        postgresql://reader@127.0.0.1:1/journals: the server cannot be reached (...); check ...
    """

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        patience: float = PATIENCE,
        timeout: float = TIMEOUT,
    ) -> None:
        address = replace(parse_url(url), timeout=timeout)
        self.id: str = open_journal(address, create=create)
        self.name: str = address.name
        self.patience = patience
        self.largest = _LARGEST
        self._pool = Pool(address)
        self._reader = JournalReader(self._pool)
        self._writer = BatchWriter(self._pool)
        self._mailbox = Mailbox(self._pool)
        self._membership = Membership(self._pool)
        self._notifier = Notifier(address, channel_of(self.id))
        self._listener = Listener(self._pool, channel_of(self.id))
        self._slots = SlotSession(address, self.id)
        self._spending = Spending(self._pool)
        self._sessions = PostgresSessions(self._pool)
        self._closing = threading.Lock()
        self._announced = 0.0  # when it was last announced that broadcasts have a reader

    # Workers and drives

    def join(self, worker: WorkerInfo, *, lease: float) -> int:
        return self._membership.join(worker, lease)

    def beat(self, load: Load) -> Orders:
        return self._membership.beat(load)

    def leave(self) -> None:
        self._membership.leave()

    def adopt(self, node: int) -> Ownership | None:
        return self._membership.adopt(node)

    def ticket(self, node: int) -> Ticket | None:
        return self._reader.ticket(node)

    def attempts(self, node: int) -> int:
        return self._membership.attempts(node)

    def release(
        self,
        ownership: Ownership,
        *,
        parked: bool,
        awaited: Collection[int] = (),
        wake_in: float | None = None,
    ) -> bool:
        return self._membership.release(ownership, parked=parked, awaited=awaited, wake_in=wake_in)

    def reserve(self, nodes: int, trees: int = 0) -> tuple[int, int]:
        return self._membership.reserve(nodes, trees)

    def owed(
        self,
        limit: int,
        *,
        older_than: float = 0.0,
        queues: Collection[str] = (),
        after: int | None = None,
    ) -> list[Ticket]:
        return self._membership.owed(limit, older_than, queues, after)

    def depth(self, queues: Collection[str] = ()) -> Owed:
        return self._membership.depth(queues)

    def workers(self) -> list[WorkerRow]:
        return self._membership.workers()

    def drain(self, worker: int) -> None:
        self._membership.drain(worker)

    def is_owned(self) -> bool:
        return self._membership.is_anyone_alive()

    def acquire(self) -> bool:
        raise UsageError(
            f"{self.name} has an owner for each tree, and none for all; call join() instead"
        )

    # Writing

    def append_batches(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        # Trees without an owner may be created by a process that runs none.
        is_owner = any(batch.ownership is not None for batch in batches)
        worker = self._membership.worker if is_owner else 0
        outcomes = self._writer.write(worker, batches)
        written = [
            batch
            for batch, outcome in zip(batches, outcomes, strict=True)
            if batch.entries and not isinstance(outcome, FencedError)
        ]
        self._membership.note_created(
            batch.ownership.node
            for batch in written
            if batch.ownership is not None and not batch.written
        )
        if written:
            self._notifier.notify(batch.entries[0].tree for batch in written)
        return outcomes

    def append(self, entries: Sequence[Entry]) -> int:
        raise UsageError(
            f"entries of {self.name} belong to drives, which workers own; call append_batches()"
        )

    def delete(self, tree: int) -> None:
        try:
            self._pool.fetch("SELECT delete_tree(%s::bigint)", (tree,))
        except Refused as error:
            errors = {STILL_OPEN: still_open_error(tree), FORKED: forked_error(tree)}
            errors[UNKNOWN_NODE] = UnknownNodeError(f"{self.name} has no node:{tree}")
            raise errors.get(error.code) or StoreError(self.name, str(error)) from None
        self._notifier.notify([tree])

    def vacuum(self) -> None:
        """Let the space of deleted trees be used again, as the server does from time to time.

        Tables are not locked, so most of the space stays with them.
        """
        self._pool.maintain("VACUUM events, nodes, texts, drives, inbox, questions, entries")

    # Reading

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        return self._reader.entries(tree, after)

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        return self._reader.entries_around(call, leaving_out)

    def places(self, trees: Collection[int]) -> dict[int, int]:
        return self._reader.places(trees)

    def texts(self, tree: int, *, hashes: Collection[str] | None = None) -> dict[str, str]:
        return self._reader.texts(tree, hashes)

    def text(self, hash: str, *, tree: int | None = None) -> str:
        return self._reader.text(hash, tree)

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        return self._reader.trees(after=after, limit=limit, is_open=open)

    def find(self, *, node: int) -> int | None:
        return self._reader.find(node)

    def find_all(self, nodes: Collection[int]) -> dict[int, int]:
        return self._reader.find_all(nodes)

    def find_key(self, key: str) -> int | None:
        return self._reader.find_key(key)

    def forks(self, tree: int) -> list[int]:
        return self._reader.forks(tree)

    def length(self, node: int) -> int:
        return self._reader.length(node)

    def highest(self) -> tuple[int, int]:
        return self._reader.highest()

    def past_runs(self, function: str, limit: int) -> list[list[float]]:
        return self._reader.past_runs(function, limit)

    def last(self) -> int:
        return self._reader.last()

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        return self._reader.questions(answered=answered, node=node, limit=limit)

    def timers(
        self, *, after: float = 0.0, until: float = math.inf, limit: int | None = None
    ) -> list[tuple[float, int]]:
        return self._reader.timers(after, until, limit)

    def pending(self, tree: int) -> list[Question]:
        return self._reader.pending(tree)

    # Messages

    def post(self, body: str, *, question: str | None = None) -> bool:
        if question is None:
            raise unaddressed_error(self.name)
        posted = self._mailbox.answer(body, question)
        node, _, _ = question.partition("-")
        if posted and node.isdecimal():
            self._notify_owner(int(node))
        return posted

    def post_to(self, node: int, body: str, *, question: str | None = None) -> bool:
        posted = self._mailbox.post_to(node, body, question)
        if posted:
            self._notify_owner(node)
        return posted

    def _notify_owner(self, node: int) -> None:
        # A hint: the message itself is in the inbox.
        with suppress(StoreError):
            if (tree := self._reader.find(node)) is not None:
                self._notifier.notify([tree])

    def inbox(self) -> list[Message]:
        return self._mailbox.all()

    def inbox_of(self, nodes: Collection[int]) -> dict[int, list[Message]]:
        return self._mailbox.of(nodes)

    def done(self, message: int) -> None:
        self._mailbox.done(self._membership.worker, message)

    # Other processes

    def listen(
        self, wake: Callable[[Collection[int]], None], *, broadcasts: bool = False
    ) -> Subscription:
        return self._listener.subscribe(wake, broadcasts=broadcasts)

    def broadcast(self, text: str) -> None:
        self._notifier.broadcast(text)

    def read_broadcasts(self, after: int = 0) -> tuple[int, list[str]]:
        now = time.monotonic()
        if now - self._announced > _WATCH:
            # A replica cannot be told; then there are no broadcasts.
            with suppress(StoreError):
                self._pool.fetch("SELECT watch()")
            self._announced = now
        found = self._pool.fetch("SELECT id, text FROM live WHERE id > %s ORDER BY id", (after,))
        return found[-1][0] if found else after, [decode_text(text) for _, text in found]

    # Limits

    def take_slots(self, limits: Mapping[str, int]) -> TakenSlots | None:
        return self._slots.take(limits)

    def take_rates(self, rates: Mapping[str, Rate], tokens: int) -> float:
        return self._spending.take_rates(rates, tokens)

    def charge_rates(self, names: Collection[str], more: int) -> None:
        self._spending.charge_rates(names, more)

    def set_aside(
        self,
        accounts: Sequence[StoredAccount],
        *,
        id: UUID,
        estimate: Estimate,
        ownership: Ownership,
    ) -> Overdrawn | None:
        return self._spending.set_aside(accounts, id, estimate, ownership)

    def charge(self, id: UUID, *, calls: int, tokens: int, usd: Decimal) -> None:
        self._spending.charge(id, calls, tokens, usd)

    # Saved chats

    @property
    def sessions(self) -> Sessions:
        """The chats saved in the database; saving one makes no worker of this store."""
        return self._sessions

    # Closing

    def close(self) -> None:
        """Leave as a worker, and close all connections; closing twice is fine."""
        with self._closing:
            if self._pool.closed:
                return
            try:
                self._membership.leave()
            except StoreError as error:
                log.warning("its drives are adopted by others after its lease only: %s", error)
            finally:
                self._notifier.close()
                self._listener.close()
                self._slots.close()
                self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._pool.closed else ""
        return f"<PostgresStore {self.name}{closed}>"
