"""Workers, ownerships and batches for tests of shared stores."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import Final

import psycopg

from postgres_server import shared_url
from treefold.core.cluster import Ownership, WorkerInfo
from treefold.core.errors import FencedError
from treefold.core.store import Batch, Entry, Store
from treefold.testing.store_suite import called, noted

PATIENCE: Final = 60.0  # seconds
LEASE: Final = 600.0  # seconds; nobody dies of a busy machine


def info(name: str = "worker") -> WorkerInfo:
    return WorkerInfo(name=name, host="here", process=1)


class TreeWriter:
    """Writes one tree as its worker does: entry after entry, each batch until it is accepted."""

    def __init__(self, store: Store, tree: int) -> None:
        self.store = store
        self.ownership = Ownership(tree, tree, 1)
        self.entries: list[Entry] = [called(tree)]  # not written yet
        self.written = 0

    def note(self, text: str = "") -> None:
        """Add an entry."""
        tree, number = self.ownership.tree, self.written + len(self.entries) + 1
        self.entries.append(noted(tree, number, text, hash=f"{number:032x}" if text else ""))

    def batch(self) -> Batch:
        return Batch(ownership=self.ownership, entries=self.entries[:], written=self.written)

    def write(self) -> int:
        """Write what was added; return the place of the last entry."""
        [outcome] = self.store.append([self.batch()])
        if isinstance(outcome, FencedError):
            raise outcome
        self.written += len(self.entries)
        self.entries = []
        return outcome


def kill_listeners(journal: str) -> int:
    """End all sessions that listen for news of a journal; return how many there were."""
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        killed = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = %s",
            (f'LISTEN "treefold_{journal}"',),
        ).fetchall()
        return len(killed)


def wait_until(holds: Callable[[], bool], what: str = "it", *, every: float = 0.01) -> None:
    end = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < end, f"{what} did not happen in time"
        sleep(every)
