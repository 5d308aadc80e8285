"""A journal and saved chats in a schema of a PostgreSQL database.

The store has a few connections of its own, and up to two threads: one sends notifications after
commits, one receives those of other processes. It does not interpret the entries.
"""

import logging
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Self

from treefold.core.cluster import WorkerInfo
from treefold.core.errors import FencedError, StoreError, UnknownNodeError
from treefold.core.question import asking_node
from treefold.core.sessions import Sessions
from treefold.core.store import LEASE, Batch, Message
from treefold.stores.errors import forked_error, still_open_error
from treefold.stores.postgres.address import TIMEOUT, parse_url
from treefold.stores.postgres.batches import BatchWriter
from treefold.stores.postgres.cluster import PostgresCluster
from treefold.stores.postgres.drives import DriveTable
from treefold.stores.postgres.faults import FORKED, STILL_OPEN, UNKNOWN_NODE
from treefold.stores.postgres.limits import LimitTable
from treefold.stores.postgres.membership import Membership
from treefold.stores.postgres.messages import Mailbox
from treefold.stores.postgres.migration import open_journal
from treefold.stores.postgres.pool import Pool, Refused
from treefold.stores.postgres.reading import JournalReader
from treefold.stores.postgres.rows import decode_text
from treefold.stores.postgres.sessions import PostgresSessions
from treefold.stores.postgres.signals import Listener, Notifier, channel_of

log = logging.getLogger(__name__)

PATIENCE: Final = 30.0  # seconds; a server that is restarted, or replaced, is back by then
_LARGEST: Final = 128 * 1024 * 1024  # bytes; PostgreSQL's limit for one message is 1 GB
_WATCH: Final = 3.0  # seconds after which a reader of broadcasts is announced again


class PostgresStore(JournalReader):  # noqa: PLR0904 - the contract has as many
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
        super().__init__(Pool(address))
        self._writer = BatchWriter(self._pool)
        self._mailbox = Mailbox(self._pool)
        self._membership = Membership(self._pool)
        self._notifier = Notifier(address, channel_of(self.id))
        self._listener = Listener(self._pool, channel_of(self.id))
        drives = DriveTable(self._pool, self._membership)
        limits = LimitTable(self._pool, self._membership)
        self.cluster = PostgresCluster(self._membership, drives, limits, self._listener)
        self._sessions = PostgresSessions(self._pool)
        self._closing = threading.Lock()
        self._announced = 0.0  # when it was last announced that broadcasts have a reader

    # Workers

    def join(self, worker: WorkerInfo | None = None, *, lease: float = LEASE) -> bool:
        self._membership.join(worker or WorkerInfo(), lease)
        return False

    def leave(self) -> None:
        self._membership.leave()

    def is_owned(self) -> bool:
        return self._membership.is_anyone_alive()

    # Writing

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        # Trees without an owner may be created by a process that runs none.
        is_owner = any(batch.ownership is not None for batch in batches)
        worker = self._membership.worker if is_owner else 0
        losses = self._membership.losses
        outcomes = self._writer.write(worker, batches)
        written = [
            batch
            for batch, outcome in zip(batches, outcomes, strict=True)
            if batch.entries and not isinstance(outcome, FencedError)
        ]
        owned = [batch.ownership for batch in written if not batch.written]
        self._membership.note_owned([one for one in owned if one is not None], losses)
        if written:
            self._notifier.notify(batch.entries[0].tree for batch in written)
        return outcomes

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

    # Messages

    def post(self, body: str, *, node: int | None = None, question: str | None = None) -> bool:
        posted = self._mailbox.post(body, node, question)
        if posted and (to := asking_node(question or "") if node is None else node) is not None:
            self._notify_owner(to)
        return posted

    def _notify_owner(self, node: int) -> None:
        # A hint: the message itself is in the inbox.
        with suppress(StoreError):
            if (tree := self.find(node=node)) is not None:
                self._notifier.notify_posted(tree)

    def inbox(self, *, drives: Collection[int] | None = None, owned: bool = False) -> list[Message]:
        return self._mailbox.read(drives, self._membership.worker if owned else None)

    def done(self, message: int) -> None:
        self._mailbox.done(self._membership.worker, message)

    # Other processes

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
                self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._pool.closed else ""
        return f"<PostgresStore {self.name}{closed}>"
