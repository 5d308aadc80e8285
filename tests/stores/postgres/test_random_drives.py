"""Random adoptions, appends, releases, messages and crashes, compared with a model of them."""

import os
from dataclasses import dataclass, field, replace

import psycopg
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postgres_server import empty_journal, shared_url
from shared_stores import LEASE, info
from treefold.core.cluster import Load, Ownership
from treefold.core.errors import FencedError
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import called, ended, noted

WORKERS = 2
TREES = st.integers(1, 2)
REMOTE = 100  # this much higher is the id of the remote call of a tree
NODES = TREES | TREES.map(lambda tree: tree + REMOTE)


@dataclass
class Drive:
    """What a drive should be like."""

    owner: int | None  # a worker
    epoch: int
    entries: int = 1
    number: int = 1  # of the last entry of its topmost node
    wanted: bool = True
    over: bool = False
    attempts: int = 0
    messages: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Held:
    """What a worker believes to own."""

    owned: Ownership
    entries: int
    number: int


class Drives(RuleBasedStateMachine):
    """Workers that own trees and remote calls, die and join again."""

    def __init__(self) -> None:
        super().__init__()
        self.schema = empty_journal()
        self.url = self.schema.__enter__()
        self.stores = [PostgresStore(self.url) for _ in range(WORKERS)]
        for store in self.stores:
            store.join(info(), lease=LEASE)
        self.ids = [store.cluster.members.worker for store in self.stores]
        self.dead: set[int] = set()
        self.drives: dict[int, Drive] = {}
        self.held: list[dict[int, Held]] = [{} for _ in range(WORKERS)]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.schema.__exit__(None, None, None)

    def _is_free(self, drive: Drive) -> bool:
        return drive.owner is None or drive.owner in self.dead

    def _is_held(self, worker: int, held: Held) -> bool:
        """Whether a worker really owns what it believes to own."""
        drive = self.drives[held.owned.node]
        return (drive.owner, drive.epoch) == (worker, held.owned.epoch)

    def _may_end(self, node: int) -> bool:
        """Whether a call is open, and no call in it is."""
        remote = self.drives.get(node + REMOTE)
        return not self.drives[node].over and (remote is None or remote.over)

    def _wake_caller(self, node: int) -> None:
        """Want the tree that a remote call was made in: the call is over, and has no owner."""
        caller = self.drives[tree_of(node)]
        if node > REMOTE and caller.owner is None and not caller.over:
            caller.wanted = True

    @rule(worker=st.integers(0, WORKERS - 1), tree=TREES)
    def create(self, worker: int, tree: int) -> None:
        owned = Ownership(tree, tree, 1)
        [outcome] = self.stores[worker].append([Batch(ownership=owned, entries=[called(tree)])])
        known = self.drives.get(tree)
        if known is None:
            assert outcome == 1
            self.drives[tree] = Drive(owner=worker, epoch=1)
            self.held[worker][tree] = Held(owned, 1, 1)
        elif (known.owner, known.epoch) == (worker, 1):
            assert outcome == 1  # it is sent again
        else:
            assert isinstance(outcome, FencedError)

    @rule(tree=TREES)
    def submit(self, tree: int) -> None:
        entries, ticket = [called(tree)], Ticket(node=tree)
        batch = Batch(ownership=None, entries=entries, tickets=[ticket])
        assert self.stores[0].append([batch]) == [1]
        if tree not in self.drives:
            self.drives[tree] = Drive(owner=None, epoch=0)

    @rule(worker=st.integers(0, WORKERS - 1), tree=TREES)
    def call_remotely(self, worker: int, tree: int) -> None:
        held, node = self.held[worker].get(tree), tree + REMOTE
        if held is None or node in self.drives or self.drives[tree].over:
            return
        [outcome] = self.stores[worker].append([
            Batch(
                ownership=held.owned,
                entries=[called(node, tree=tree, parent=tree)],
                written=held.entries,
                tickets=[Ticket(node=node)],
            )
        ])
        if self._is_held(worker, held):
            assert isinstance(outcome, int)
            self.drives[tree].entries += 1
            self.held[worker][tree] = replace(held, entries=held.entries + 1)
            self.drives[node] = Drive(owner=None, epoch=0, entries=0)
        else:
            assert isinstance(outcome, FencedError)

    @rule(worker=st.integers(0, WORKERS - 1), node=NODES)
    def adopt(self, worker: int, node: int) -> None:
        drive = self.drives.get(node)
        if worker in self.dead:
            try:
                found = self.stores[worker].cluster.drives.adopt(node)
            except FencedError:
                return
            raise AssertionError(f"a dead worker has adopted {found}")
        found = self.stores[worker].cluster.drives.adopt(node)
        if drive is None or (not self._is_free(drive) and drive.owner != worker):
            assert found is None
        elif drive.over and not drive.messages:
            assert found is None
            drive.owner, drive.wanted = None, False
            self._wake_caller(node)
        else:
            drive.attempts += drive.owner is not None and drive.owner != worker
            drive.owner, drive.wanted = worker, True
            drive.epoch += 1
            owned = Ownership(node, tree_of(node), drive.epoch, drive.entries)
            assert found == owned
            assert found is not None
            assert found.attempts == drive.attempts
            self.held[worker][node] = Held(owned, drive.entries, drive.number)

    @rule(
        worker=st.integers(0, WORKERS - 1),
        count=st.integers(1, 3),
        ends=st.booleans(),
        again=st.booleans(),
    )
    def append(self, worker: int, count: int, *, ends: bool, again: bool) -> None:
        """Write to everything that a worker believes to own, in one call."""
        believed, batches = list(self.held[worker].values()), list[Batch]()
        for held in believed:
            node, tree = held.owned.node, held.owned.tree
            entries = [noted(node, held.number + k, tree=tree) for k in range(1, count + 1)]
            if ends and self._may_end(node):
                entries[-1] = ended(node, held.number + count, tree=tree)
            batches.append(Batch(ownership=held.owned, entries=entries, written=held.entries))
        for _ in range(1 + again):
            outcomes = self.stores[worker].append(batches)
            for held, batch, outcome in zip(believed, batches, outcomes, strict=True):
                if self._is_held(worker, held):
                    assert isinstance(outcome, int)
                    node, drive = held.owned.node, self.drives[held.owned.node]
                    drive.entries, drive.number = held.entries + count, held.number + count
                    self.held[worker][node] = Held(held.owned, drive.entries, drive.number)
                    if batch.entries[-1].state is not None:
                        drive.over, drive.attempts = True, 0
                else:
                    assert isinstance(outcome, FencedError)

    @rule(
        worker=st.integers(0, WORKERS - 1),
        node=NODES,
        parked=st.booleans(),
        awaits=st.booleans(),
    )
    def release(self, worker: int, node: int, *, parked: bool, awaits: bool) -> None:
        if (held := self.held[worker].get(node)) is None:
            return
        remote = self.drives.get(node + REMOTE) if awaits else None
        released = self.stores[worker].cluster.drives.release(
            held.owned, parked=parked, awaited=[node + REMOTE] if remote else []
        )
        drive = self.drives[node]
        if not self._is_held(worker, held):
            assert released
        elif parked and (drive.messages or (remote is not None and remote.over)):
            assert not released
        else:
            assert released
            drive.owner, drive.attempts = None, 0
            drive.wanted = bool(drive.messages) or not (parked or drive.over)
            if drive.over:
                self._wake_caller(node)

    @rule(worker=st.integers(0, WORKERS - 1), node=NODES)
    def post(self, worker: int, node: int) -> None:
        if (drive := self.drives.get(node)) is not None:
            assert self.stores[worker].post("news", node=node)
            drive.messages.append(self.stores[0].inbox()[-1].id)
            drive.wanted = True

    @rule(worker=st.integers(0, WORKERS - 1), node=NODES)
    def handle(self, worker: int, node: int) -> None:
        drive = self.drives.get(node)
        if drive is not None and drive.messages:
            self.stores[worker].done(drive.messages[0])
            if drive.owner == worker:
                del drive.messages[0]

    @rule(worker=st.integers(0, WORKERS - 1))
    def crash(self, worker: int) -> None:
        """Have the lease of a worker end; it may go on, as a process that was stopped does."""
        self._set_lease(worker, 0.0)
        self.dead.add(worker)

    def _set_lease(self, worker: int, seconds: float) -> None:
        with psycopg.connect(shared_url(), autocommit=True) as connection:
            schema = self.url.rpartition("schema=")[2]
            connection.execute(
                f"UPDATE {schema}.workers SET lease = make_interval(secs => %s)"
                " WHERE id = %s".encode(),
                (seconds, self.ids[worker]),
            )

    @precondition(lambda self: self.dead)
    @rule()
    def start_again(self) -> None:
        """Have a new process take the place of a dead one, which never comes back."""
        worker = min(self.dead)
        self.stores[worker].leave()
        left = {node: drive for node, drive in self.drives.items() if drive.owner == worker}
        for drive in left.values():
            drive.owner, drive.attempts = None, 0
            drive.wanted = bool(drive.messages) or not drive.over
        for node, drive in left.items():
            if drive.over:
                self._wake_caller(node)
        self.stores[worker].join(info(), lease=LEASE)
        self.ids[worker] = self.stores[worker].cluster.members.worker
        self.dead.discard(worker)
        self.held[worker] = {}

    @rule(worker=st.integers(0, WORKERS - 1))
    def beat(self, worker: int) -> None:
        if worker in self.dead:
            self._set_lease(worker, LEASE)
            self.dead.discard(worker)  # its heartbeat has it live again
        orders = self.stores[worker].cluster.members.beat(Load())
        owned = {node: drive for node, drive in self.drives.items() if drive.owner == worker}
        assert orders.messages == {node for node, drive in owned.items() if drive.messages}
        assert not orders.lost & owned.keys()

    @invariant()
    def what_is_owed_is_what_nobody_runs(self) -> None:
        owed = {ticket.node for ticket in self.stores[0].cluster.drives.owed(99)}
        assert owed == {
            node for node, drive in self.drives.items() if drive.wanted and self._is_free(drive)
        }

    @invariant()
    def every_tree_has_its_entries_and_its_owner(self) -> None:
        rows = {row.id: row for row in self.stores[0].trees()}
        assert rows.keys() == {tree_of(node) for node in self.drives}
        for node, drive in self.drives.items():
            if node < REMOTE:
                seqs = [entry.seq for entry in self.stores[0].entries(node)]
                remote = self.drives.get(node + REMOTE)
                assert len(seqs) == drive.entries + (remote.entries if remote else 0)
                assert seqs == list(range(1, len(seqs) + 1))
                assert rows[node].open is not drive.over
                assert rows[node].driven is (not drive.over and not self._is_free(drive))


def tree_of(node: int) -> int:
    return node % REMOTE


TestDrives = Drives.TestCase
TestDrives.settings = settings(
    max_examples=500 if os.environ.get("TREEFOLD_CLUSTER") == "exhaustive" else 12,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
