"""Slots of limits that all processes keep together: locks of a session of PostgreSQL.

Such a lock ends with its session, and a session with its process. So there is nothing to clean up
after a crash, and no lease that would have to be renewed while a model answers.
"""

import hashlib
import logging
import threading
from collections.abc import Mapping
from typing import Final

import psycopg

from treefold.stores.postgres.address import Address
from treefold.stores.postgres.connection import Connection, connect
from treefold.stores.postgres.faults import closed_fault, fault_of
from treefold.stores.postgres.rows import compact

log = logging.getLogger(__name__)

# The server ends a session whose machine is gone; by default that would take two hours.
_KEEPALIVE: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
    "tcp_user_timeout": "30000",
}

Lock = tuple[int, int]  # the limit, and the number of the slot


class SlotSession:
    """A session that has all slots of one process; safe to use from any thread."""

    def __init__(self, address: Address, journal: str) -> None:
        self._address = address
        self._journal = journal
        self._mutex = threading.Lock()  # guards everything below
        self._connection: Connection | None = None
        self._held: dict[Lock, HeldSlots] = {}
        self._closed = False

    def take(self, limits: Mapping[str, int]) -> "HeldSlots | None":
        """Take one slot of each limit, or none.

        Raises:
            StoreError: the server cannot be reached.
        """
        keys = [_key(self._journal, name) for name in limits]
        with self._mutex:
            connection = self._connected()
            free = [
                [slot for slot in range(1, size + 1) if (key, slot) not in self._held]
                for key, size in zip(keys, limits.values(), strict=True)
            ]
            if not all(free):
                return None
            values = (keys, compact(free))
            try:
                found = connection.execute(
                    "SELECT take_slots(%s::integer[], %s::json)", values, prepare=True
                ).fetchone()
            except psycopg.Error as error:
                raise self._broken(error) from None
            assert found is not None  # it always returns one row
            if found[0] is None:
                return None
            taken = HeldSlots(self, list(zip(keys, found[0], strict=True)))
            for lock in taken.locks:
                self._held[lock] = taken
            return taken

    def give_back(self, slots: "HeldSlots") -> None:
        """Unlock the slots, unless they were lost with an earlier session."""
        with self._mutex:
            own = [lock for lock in slots.locks if self._held.get(lock) is slots]
            for lock in own:
                del self._held[lock]
            if not own or self._connection is None:
                return
            search = "SELECT pg_advisory_unlock(%s::integer, %s::integer)"
            try:
                for lock in own:
                    self._connection.execute(search, lock, prepare=True)
            except psycopg.Error as error:
                # The session ends, and with it the lock.
                self._broken(error)

    def close(self) -> None:
        """End the session, and with it all of its slots."""
        with self._mutex:
            self._closed = True
            self._disconnect()
            self._held.clear()

    def _connected(self) -> Connection:
        if self._closed:
            raise closed_fault(self._address.name)
        if self._connection is None:
            connection = connect(self._address)
            self._connection = connection
            calls = ", ".join("set_config(%s, %s, false)" for _ in _KEEPALIVE)
            words = [word for setting in _KEEPALIVE.items() for word in setting]
            try:
                connection.execute(f"SELECT {calls}".encode(), words)
                self._take_again(connection)
            except psycopg.Error as error:
                raise self._broken(error) from None
        return self._connection

    def _take_again(self, connection: Connection) -> None:
        """Take the slots of requests that are still under way since an earlier session."""
        search = "SELECT pg_try_advisory_lock(%s::integer, %s::integer)"
        for lock in tuple(self._held):
            if connection.execute(search, lock).fetchone() != (True,):
                # Another process has it: until this request has ended there is one too many.
                del self._held[lock]

    def _broken(self, error: psycopg.Error) -> Exception:
        self._disconnect()
        if self._held:
            log.warning(
                "%s: %d requests are under way without their slots",
                self._address.name,
                len(set(self._held.values())),
            )
        return fault_of(self._address.name, error)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class HeldSlots:
    """One slot of each limit that a request falls under."""

    def __init__(self, session: SlotSession, locks: list[Lock]) -> None:
        self._session = session
        self.locks = locks

    def give_back(self) -> None:
        """Let others have the slots."""
        self._session.give_back(self)


def _key(journal: str, limit: str) -> int:
    """Return the number of a limit; locks are those of a database, which may have many journals."""
    digest = hashlib.sha256(f"{journal} {limit}".encode()).digest()
    return int.from_bytes(digest[:4], signed=True)
