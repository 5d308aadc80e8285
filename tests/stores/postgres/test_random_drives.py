"""Random adoptions, appends, releases, messages and crashes, compared with a model of them."""

from dataclasses import dataclass, field

import psycopg
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postgres_server import new_schema, shared_url
from shared_stores import LEASE, info
from treefold.core.errors import FencedError
from treefold.core.shared_store import Batch, Load, Ownership, Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import called, ended, noted

WORKERS = 3
NODES = st.integers(1, 4)


@dataclass
class Drive:
    """What a drive should be like."""

    owner: int | None  # a worker
    epoch: int
    entries: int = 1
    wanted: bool = True
    over: bool = False
    attempts: int = 0
    messages: list[int] = field(default_factory=list[int])


class Drives(RuleBasedStateMachine):
    """Workers that own trees, die and join again; ``held`` is what each of them believes to own."""

    def __init__(self) -> None:
        super().__init__()
        self.schema = new_schema()
        self.url = self.schema.__enter__()
        self.stores = [PostgresStore(self.url) for _ in range(WORKERS)]
        self.ids = [store.join(info(), lease=LEASE) for store in self.stores]
        self.dead: set[int] = set()
        self.drives: dict[int, Drive] = {}
        self.held: list[dict[int, tuple[Ownership, int]]] = [{} for _ in range(WORKERS)]

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.schema.__exit__(None, None, None)

    def is_free(self, drive: Drive) -> bool:
        return drive.owner is None or drive.owner in self.dead

    @rule(worker=st.integers(0, WORKERS - 1), tree=NODES)
    def create(self, worker: int, tree: int) -> None:
        owned = Ownership(tree, tree, 1)
        [outcome] = self.stores[worker].append_batches([
            Batch(ownership=owned, entries=[called(tree)])
        ])
        known = self.drives.get(tree)
        if known is None:
            assert outcome == 1
            self.drives[tree] = Drive(owner=worker, epoch=1)
            self.held[worker][tree] = owned, 1
        elif (known.owner, known.epoch) == (worker, 1):
            assert outcome == 1  # it is sent again
        else:
            assert isinstance(outcome, FencedError)

    @rule(tree=NODES)
    def submit(self, tree: int) -> None:
        entries, ticket = [called(tree)], Ticket(node=tree)
        batch = Batch(ownership=None, entries=entries, tickets=[ticket])
        assert self.stores[0].append_batches([batch]) == [1]
        if tree not in self.drives:
            self.drives[tree] = Drive(owner=None, epoch=0)

    @rule(worker=st.integers(0, WORKERS - 1), tree=NODES)
    def adopt(self, worker: int, tree: int) -> None:
        drive = self.drives.get(tree)
        if worker in self.dead:
            try:
                found = self.stores[worker].adopt(tree)
            except FencedError:
                return
            raise AssertionError(f"a dead worker has adopted {found}")
        found = self.stores[worker].adopt(tree)
        if drive is None or (not self.is_free(drive) and drive.owner != worker):
            assert found is None
        elif drive.over and not drive.messages:
            assert found is None
            drive.owner, drive.wanted = None, False
        else:
            drive.attempts += drive.owner is not None and drive.owner != worker
            drive.owner, drive.wanted = worker, True
            drive.epoch += 1
            owned = Ownership(tree, tree, drive.epoch, drive.entries)
            assert found == owned
            self.held[worker][tree] = owned, drive.entries

    @rule(
        worker=st.integers(0, WORKERS - 1),
        count=st.integers(1, 3),
        ends=st.booleans(),
        again=st.booleans(),
    )
    def append(self, worker: int, count: int, *, ends: bool, again: bool) -> None:
        """Write to all trees that a worker believes to own, in one call."""
        held, batches = self.held[worker], list[Batch]()
        for tree, (owned, written) in held.items():
            entries = [noted(tree, written + k) for k in range(1, count + 1)]
            if ends and not self.drives[tree].over:
                entries[-1] = ended(tree, written + count)
            batches.append(Batch(ownership=owned, entries=entries, written=written))
        for _ in range(1 + again):
            outcomes = self.stores[worker].append_batches(batches)
            for batch, outcome in zip(batches, outcomes, strict=True):
                assert batch.ownership is not None
                tree, drive = batch.ownership.tree, self.drives[batch.ownership.tree]
                if (drive.owner, drive.epoch) == (worker, batch.ownership.epoch):
                    drive.entries = batch.written + count
                    assert outcome == drive.entries
                    held[tree] = batch.ownership, drive.entries
                    if batch.entries[-1].state is not None:
                        drive.over, drive.attempts = True, 0
                else:
                    assert isinstance(outcome, FencedError)

    @rule(worker=st.integers(0, WORKERS - 1), tree=NODES, parked=st.booleans())
    def release(self, worker: int, tree: int, *, parked: bool) -> None:
        if (held := self.held[worker].get(tree)) is None:
            return
        owned, _ = held
        released = self.stores[worker].release(owned, parked=parked)
        drive = self.drives[tree]
        if (drive.owner, drive.epoch) != (worker, owned.epoch):
            assert released
        elif parked and drive.messages:
            assert not released
        else:
            assert released
            drive.owner, drive.attempts = None, 0
            drive.wanted = bool(drive.messages) or not (parked or drive.over)

    @rule(worker=st.integers(0, WORKERS - 1), tree=NODES)
    def post(self, worker: int, tree: int) -> None:
        if (drive := self.drives.get(tree)) is not None:
            assert self.stores[worker].post_to(tree, "news")
            drive.messages.append(self.stores[0].inbox()[-1].id)
            drive.wanted = True

    @rule(worker=st.integers(0, WORKERS - 1), tree=NODES)
    def handle(self, worker: int, tree: int) -> None:
        drive = self.drives.get(tree)
        if drive is not None and drive.messages:
            self.stores[worker].done(drive.messages[0])
            if drive.owner in {None, worker}:
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
        for drive in self.drives.values():
            if drive.owner == worker:
                drive.owner, drive.attempts = None, 0
                drive.wanted = bool(drive.messages) or not drive.over
        self.ids[worker] = self.stores[worker].join(info(), lease=LEASE)
        self.dead.discard(worker)
        self.held[worker] = {}

    @rule(worker=st.integers(0, WORKERS - 1))
    def beat(self, worker: int) -> None:
        if worker in self.dead:
            self._set_lease(worker, LEASE)
            self.dead.discard(worker)  # its heartbeat has it live again
        orders = self.stores[worker].beat(Load())
        owned = {tree: drive for tree, drive in self.drives.items() if drive.owner == worker}
        assert orders.messages == {tree for tree, drive in owned.items() if drive.messages}
        assert not orders.lost & owned.keys()

    @invariant()
    def what_is_owed_is_what_nobody_runs(self) -> None:
        owed = {ticket.node for ticket in self.stores[0].owed(99)}
        assert owed == {
            tree for tree, drive in self.drives.items() if drive.wanted and self.is_free(drive)
        }

    @invariant()
    def every_tree_has_its_entries_and_its_owner(self) -> None:
        rows = {row.id: row for row in self.stores[0].trees()}
        assert rows.keys() == self.drives.keys()
        for tree, drive in self.drives.items():
            seqs = [entry.seq for entry in self.stores[0].entries(tree)]
            assert seqs == list(range(1, drive.entries + 1))
            assert rows[tree].open is not drive.over
            assert rows[tree].driven is (not drive.over and not self.is_free(drive))
            assert self.stores[0].attempts(tree) == drive.attempts


TestDrives = Drives.TestCase
TestDrives.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
