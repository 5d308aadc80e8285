"""Parking a drive while messages are posted for it, or its calls end: no wake-up is lost."""

import os
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from cluster.leases import connect
from shared_stores import LEASE, PATIENCE, TreeWriter, info, wait_until
from treefold.core.cluster import Ownership
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import at_once, called, ended

ROUNDS = 10_000 if os.environ.get("TREEFOLD_CLUSTER") == "exhaustive" else 400


class Inbox:
    """What became of the messages for tree 1, and when it was parked."""

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.parked: list[int] = []

    def fill(self, desk: PostgresStore) -> list[int]:
        for number in range(1, ROUNDS + 1):
            assert desk.post("news", node=1)
            if number % 3:
                # The next one comes at the moment at which the tree is parked, or nearly so.
                wait_until(lambda number=number: len(self.handled) == number, every=0.0001)
        return []

    def empty(self, worker: PostgresStore, owned: Ownership | None) -> list[int]:
        """Run the tree as a worker does: handle the messages, park, adopt it if it is owed."""
        end = monotonic() + PATIENCE
        while len(self.handled) < ROUNDS:
            assert monotonic() < end, f"only {len(self.handled)} messages were handled"
            if owned is not None:
                owned = self.handle(worker, owned)
            elif worker.cluster.drives.owed(1) == [Ticket(node=1)]:
                owned = worker.cluster.drives.adopt(1)
        return []

    def handle(self, worker: PostgresStore, owned: Ownership) -> Ownership | None:
        for message in worker.inbox(drives=[1], owned=True):
            worker.done(message.id)
            self.handled.append(message.id)
        if not worker.cluster.drives.release(owned, parked=True):
            return owned
        self.parked.append(owned.epoch)
        return None


def test_no_message_is_lost_in_any_interleaving(journal_url: str):
    inbox = Inbox()
    with (
        PostgresStore(journal_url) as one,
        PostgresStore(journal_url) as two,
        PostgresStore(journal_url) as desk,
    ):
        for worker in (one, two):
            worker.join(info(), lease=LEASE)
        TreeWriter(one, 1).write()
        at_once([
            lambda: inbox.fill(desk),
            lambda: inbox.empty(one, Ownership(1, 1, 1, 1)),
            lambda: inbox.empty(two, None),
        ])
        assert len(set(inbox.handled)) == len(inbox.handled) == ROUNDS
        assert len(set(inbox.parked)) == len(inbox.parked)
        assert len(inbox.parked) > ROUNDS // 10
        assert desk.inbox() == []


def test_a_remote_call_that_ends_while_its_caller_is_being_parked_wakes_it(journal_url: str):
    """The caller is a remote call itself: its drive is not the one that all entries lock."""
    tree = Ownership(1, 1, 1)
    entries = [called(1), called(2, tree=1, parent=1)]
    with (
        PostgresStore(journal_url) as one,
        PostgresStore(journal_url) as two,
        connect(journal_url) as slow,
        ThreadPoolExecutor(1) as thread,
    ):
        one.join(info(), lease=LEASE)
        worker = one.cluster.members.worker
        two.join(info(), lease=LEASE)
        one.append([Batch(ownership=tree, entries=entries, tickets=[Ticket(node=2)])])
        caller = one.cluster.drives.adopt(2)
        assert caller is not None
        entries = [called(3, tree=1, parent=2)]
        one.append([Batch(ownership=caller, entries=entries, tickets=[Ticket(node=3)])])
        call = two.cluster.drives.adopt(3)
        assert call is not None

        def end() -> bool:
            two.append([Batch(ownership=call, entries=[ended(3, tree=1)])])
            return two.cluster.drives.release(call, parked=False)

        with slow.transaction():
            release = "SELECT release(%s::bigint, 2, %s::integer, true, ARRAY[3]::bigint[], NULL)"
            assert slow.execute(release, (worker, caller.epoch)).fetchall() == [(True,)]
            released = thread.submit(end)
            blocks = (
                "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted"
                " AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
            )
            wait_until(lambda: released.done() or slow.execute(blocks).fetchall() == [(True,)])
        assert released.result(PATIENCE)
        assert one.cluster.drives.owed(9) == [Ticket(node=2)]
