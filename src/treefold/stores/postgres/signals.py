"""Tells other processes that something was written, and hears it from them.

A notification has the ids of trees, and whether a message was posted, and nothing else: every role
that may connect to the database may listen. It is sent after the commit and for many commits at
once: as part of a commit it would make all commits of the database wait for each other.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

import psycopg
from psycopg import sql

from treefold.core.errors import StoreError, TreefoldError
from treefold.stores.postgres.address import Address
from treefold.stores.postgres.connection import Connection, connect
from treefold.stores.postgres.faults import fault_of
from treefold.stores.postgres.pool import Pool
from treefold.stores.postgres.rows import compact, encode_text

log = logging.getLogger(__name__)

Wake = Callable[[Collection[int]], None]

_EVERY: Final = 0.02  # seconds between two notifications of one process
_AFTER_FAILURE: Final = 1.0  # seconds
_PATIENCE: Final = 2.0  # seconds that closing waits for what is left to send
_IDS: Final = 300  # that fit into one notification
_MOST: Final = 10 * _IDS  # more trees are not named
_LINES: Final = 1000  # broadcasts that are kept until they are sent
_WATCHED: Final = 1.0  # seconds for which a watcher counts as present

LIVE: Final = "live"  # instead of ids: there are broadcasts
_POSTED: Final = "posted "  # before ids: there are messages for these trees
_NOTHING: Final = "-"  # for a listener that should look whether it was closed


def channel_of(journal: str) -> str:
    """Return the name of the channel for the notifications about a journal."""
    return f"treefold_{journal}"


class Notifier:
    """Sends notifications and broadcasts in a thread of its own, which is started when needed."""

    def __init__(self, address: Address, channel: str) -> None:
        self._address = address
        self._channel = channel
        self._changed = threading.Condition()  # guards everything below
        self._trees: set[int] = set()
        self._posted: set[int] = set()
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._sending = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def notify(self, trees: Iterable[int]) -> None:
        """Tell listeners soon that these trees have changed."""
        with self._changed:
            self._trees.update(trees)
            self._wake()

    def notify_posted(self, tree: int) -> None:
        """Tell listeners soon that a message was posted for this tree."""
        with self._changed:
            self._posted.add(tree)
            self._wake()

    def broadcast(self, line: str) -> None:
        """Send *line* soon, if there is a watcher; never blocks."""
        with self._changed:
            self._lines.append(encode_text(line))
            self._wake()

    def close(self) -> None:
        """Send what is left, within a moment, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_PATIENCE)

    def _wake(self) -> None:
        if self._closed:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="treefold notifier", daemon=True)
            # If it cannot be started, listeners poll; and the next change tries again.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread
        self._changed.notify_all()

    def _run(self) -> None:
        sender = _Sender(self._address, self._channel)
        try:
            while (taken := self._take()) is not None:
                delay = _EVERY if sender.send(*taken) else _AFTER_FAILURE
                with self._changed:
                    # What comes meanwhile is sent together.
                    self._changed.wait_for(lambda: self._closed, delay)
        finally:
            sender.close()

    def _take(self) -> tuple[list[str], list[str]] | None:
        """Wait for something to send, and return payloads and lines; None when there is no more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._trees or self._posted or self._lines or self._closed
            )
            payloads = [*_payloads(self._trees), *_payloads(self._posted, _POSTED)]
            lines = list(self._lines)
            self._trees, self._posted = set(), set()
            self._lines.clear()
            return (payloads, lines) if payloads or lines else None


class _Sender:
    """The connection of a notifier; used by its thread only."""

    def __init__(self, address: Address, channel: str) -> None:
        self._address = address
        self._channel = channel
        self._connection: Connection | None = None
        self._watched_until = 0.0

    def send(self, payloads: Collection[str], lines: Collection[str]) -> bool:
        """Send all of it; return whether that succeeded. What fails is not sent later."""
        # The connection may be from before the server was restarted.
        for _ in range(1 if self._connection is None else 2):
            try:
                self._send(payloads, lines)
            except (psycopg.Error, StoreError) as error:
                log.debug("%s: a notification was not sent (%s)", self._address.name, error)
                self.close()
            else:
                return True
        return False

    def _send(self, payloads: Collection[str], lines: Collection[str]) -> None:
        if self._connection is None:
            self._connection = connect(self._address)
            self._connection.execute("SET synchronous_commit = off")
        for payload in payloads:
            self._notify(self._connection, payload)
        if lines:
            self._broadcast(self._connection, lines)

    def _notify(self, connection: Connection, payload: str) -> None:
        connection.execute("SELECT pg_notify(%s, %s)", (self._channel, payload), prepare=True)

    def _broadcast(self, connection: Connection, lines: Collection[str]) -> None:
        now = time.monotonic()
        if now > self._watched_until:
            # The lines themselves are sent only if a subscriber wants them.
            search = "SELECT 1 FROM watched WHERE until > clock_timestamp()"
            if connection.execute(search, prepare=True).fetchone() is None:
                return
            self._watched_until = now + _WATCHED
        kept = connection.execute("SELECT broadcast(%s::json)", (compact(list(lines)),)).fetchone()
        if kept == (True,):
            self._notify(connection, LIVE)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _payloads(trees: Collection[int], prefix: str = "") -> list[str]:
    """Return the ids in *trees* as payloads, or one without ids if there are too many."""
    if len(trees) > _MOST:
        return [prefix]
    ids = sorted(trees)
    pages = [ids[start : start + _IDS] for start in range(0, len(ids), _IDS)]
    return [prefix + ",".join(map(str, page)) for page in pages]


class Listener:
    """Receives the notifications about one journal, in a thread of its own."""

    def __init__(self, pool: Pool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._lock = threading.Lock()  # guards everything below
        self._subscriptions: list[Subscribed] = []
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()  # set for the thread that is to end
        self._listening = threading.Event()

    def subscribe(self, wake: Wake, posted: Wake | None, *, broadcasts: bool) -> "Subscribed":
        """Call them from now on; if the server does not answer, from when it does."""
        subscribed = Subscribed(self, wake, posted, broadcasts=broadcasts)
        with self._lock:
            self._subscriptions.append(subscribed)
            if self._thread is None:
                ended = self._ended = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(ended,), name="treefold listener", daemon=True
                )
                self._thread.start()
        self._listening.wait(_PATIENCE)
        return subscribed

    def unsubscribe(self, subscribed: "Subscribed") -> None:
        """Call it no more; with the last one the thread ends."""
        with self._lock:
            if subscribed not in self._subscriptions:
                return
            self._subscriptions.remove(subscribed)
            if self._subscriptions:
                return
            thread, self._thread = self._thread, None
            self._ended.set()
            self._listening = threading.Event()
        if thread is not None and thread is not threading.current_thread():
            # It waits for a notification.
            with suppress(TreefoldError):
                self._pool.fetch("SELECT pg_notify(%s, %s)", (self._channel, _NOTHING))
            thread.join(_PATIENCE)

    def close(self) -> None:
        """End all subscriptions."""
        for subscribed in tuple(self._subscriptions):
            self.unsubscribe(subscribed)

    def _run(self, ended: threading.Event) -> None:
        complained = False
        while not ended.is_set():
            try:
                self._listen(ended)
            except (psycopg.Error, StoreError) as error:
                self._listening.clear()
                if not complained:
                    complained = True
                    fault = error if isinstance(error, StoreError) else self._fault(error)
                    log.info("changes are noticed later, by polling: %s", fault)
                ended.wait(_AFTER_FAILURE)

    def _fault(self, error: psycopg.Error) -> Exception:
        return fault_of(self._pool.address.name, error)

    def _listen(self, ended: threading.Event) -> None:
        with connect(self._pool.address) as connection:
            # It waits for as long as nothing happens; keepalives notice if the server is gone.
            connection.silence = None
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            self._listening.set()
            # Notifications before this moment were missed.
            self._wake((), posted=True)
            while not ended.is_set():
                payloads = [
                    notified.payload for notified in connection.notifies(timeout=1, stop_after=1)
                ]
                for payload in dict.fromkeys(payloads):
                    self._receive(payload)

    def _receive(self, payload: str) -> None:
        if payload == LIVE:
            self._wake((), only_broadcasts=True)
        elif payload != _NOTHING:
            ids = payload.removeprefix(_POSTED)
            # Any session may send any text on a channel.
            trees = [int(id) for id in ids.split(",") if id.isdecimal()]
            self._wake(trees, posted=ids != payload)

    def _wake(
        self, trees: Collection[int], *, posted: bool = False, only_broadcasts: bool = False
    ) -> None:
        with self._lock:
            subscriptions = tuple(self._subscriptions)
        for subscribed in subscriptions:
            if subscribed.broadcasts or not only_broadcasts:
                subscribed.call(trees, posted=posted)


class Subscribed:
    """One subscription; closing it ends the calls."""

    def __init__(
        self, listener: Listener, wake: Wake, posted: Wake | None, *, broadcasts: bool
    ) -> None:
        self._listener = listener
        self._wake = wake
        self._posted = posted
        self.broadcasts = broadcasts

    def call(self, trees: Collection[int], *, posted: bool) -> None:
        """Call the callbacks; a failure of one is logged, and ends nothing."""
        try:
            self._wake(trees)
            if posted and self._posted is not None:
                self._posted(trees)
        except Exception:
            log.exception("a callback for changes of the journal failed")

    def close(self) -> None:
        """End the calls."""
        self._listener.unsubscribe(self)
