"""The clock of the database is set while workers live and die."""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, LiteralString

import pytest

from cluster.leases import change_server, connect, end_lease, set_clock, set_heartbeats
from postgres_server import empty_journal
from shared_stores import LEASE, PATIENCE, info, wait_until
from treefold import FencedError
from treefold.core.cluster import Load, Orders, Ownership
from treefold.core.fact import replace
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.stores.postgres.address import parse_url
from treefold.stores.postgres.drives import DriveTable
from treefold.stores.postgres.membership import Membership
from treefold.stores.postgres.pool import Pool
from treefold.testing.store_suite import called, ended, noted

HOUR = 3600.0
SHORT = 0.5  # seconds
PID = 4711  # of the worker that dies
Join = Callable[..., PostgresStore]


@pytest.fixture
def url() -> Generator[str]:
    with empty_journal() as url:
        yield url


@pytest.fixture
def join(url: str) -> Generator[Join]:
    """Open a store as one more worker."""
    opened: list[PostgresStore] = []

    def join(lease: float = LEASE, pid: int = 1) -> PostgresStore:
        store = PostgresStore(url)
        opened.append(store)
        store.join(replace(info(), process=pid), lease=lease)
        return store

    yield join
    for store in opened:
        store.close()


def create(store: PostgresStore, *trees: int) -> None:
    """Have *store* own new trees."""
    for tree in trees:
        batch = Batch(ownership=Ownership(tree, tree=tree, epoch=1), entries=[called(tree)])
        store.append([batch])


def revive(url: str) -> None:
    """Give all workers a lease that has not ended."""
    with connect(url) as connection:
        connection.execute("UPDATE workers SET lease = interval '1 hour'")


def adopts(store: PostgresStore, tree: int) -> bool:
    """Have *store* send a heartbeat, look for what is owed and adopt a tree, if it can."""
    store.cluster.members.beat(Load())
    listed = [ticket.node for ticket in store.cluster.drives.owed(10, older_than=0.01)]
    return tree in listed and store.cluster.drives.adopt(tree) is not None


def test_a_clock_that_is_set_back_keeps_no_dead_worker_alive(url: str, join: Join):
    living, dead = join(), join(SHORT)
    create(dead, 1)
    set_clock(url, -HOUR)
    wait_until(lambda: adopts(living, 1))


def test_a_clock_that_was_set_back_when_nobody_lived_keeps_no_dead_worker_alive(
    url: str, join: Join
):
    create(join(SHORT), 1)
    set_clock(url, -HOUR)
    alone = join()
    wait_until(lambda: adopts(alone, 1))


def test_a_clock_that_is_set_forward_kills_nobody(url: str, join: Join):
    one, other = join(), join()
    create(one, 1)
    set_clock(url, HOUR)
    join()
    other.cluster.members.beat(Load())
    assert other.cluster.drives.owed(10) == []
    assert other.cluster.drives.adopt(1) is None
    assert one.cluster.members.beat(Load()) == Orders()


@pytest.mark.parametrize("part", [0.4, 0.7, 0.9, 1.1])
def test_a_clock_that_is_set_forward_by_a_part_of_a_lease_kills_nobody(
    url: str, join: Join, part: float
):
    one, other = join(pid=PID), join()
    create(one, 1)
    assert one.cluster.limits.set_slots({"*": 1}, limits={"*": 1})
    with connect(url) as connection:
        # The next heartbeat of one is due.
        connection.execute("UPDATE workers SET seen = seen - lease / 3 WHERE process = %s", (PID,))
    set_heartbeats(url, part * LEASE)
    with suppress(FencedError):
        assert other.cluster.drives.adopt(1) is None
    assert not other.cluster.limits.set_slots({"*": 1}, limits={"*": 1})
    other.cluster.members.beat(Load())
    assert other.cluster.drives.owed(10) == []
    assert other.cluster.drives.adopt(1) is None
    assert not other.cluster.limits.set_slots({"*": 1}, limits={"*": 1})


def test_a_worker_that_is_dead_stays_so_when_the_clock_is_set_forward(url: str, join: Join):
    living, dead = join(), join(pid=PID)
    create(dead, 1)
    end_lease(url, PID)
    set_clock(url, HOUR)
    wait_until(lambda: adopts(living, 1))


def test_living_workers_are_not_forgotten_when_the_clock_is_set_forward(url: str, join: Join):
    other, dead = join(), join(pid=PID)
    set_clock(url, 2 * HOUR)
    one = join(SHORT)
    with connect(url) as connection:
        connection.execute(
            "UPDATE workers SET seen = seen - interval '1 day' WHERE process = %s", (PID,)
        )
    assert other.cluster.members.beat(Load()) == Orders()

    def has_forgotten() -> bool:
        one.cluster.members.beat(Load())
        return PID not in {row.info.process for row in one.cluster.members.workers()}

    wait_until(has_forgotten)
    assert other.cluster.members.beat(Load()) == Orders()
    with pytest.raises(FencedError):
        dead.cluster.members.beat(Load())


def test_another_server_waits_for_a_heartbeat_before_anybody_counts_as_dead(url: str, join: Join):
    living, dead = join(), join(SHORT)
    create(dead, 1)
    change_server(url)
    set_clock(url, HOUR)
    assert living.cluster.drives.owed(10) == []
    assert living.cluster.drives.adopt(1) is None
    wait_until(lambda: adopts(living, 1))


# What a heartbeat hears


def test_a_tree_that_is_lost_while_another_is_released_is_reported(url: str, join: Join):
    one, other = join(pid=PID), join()
    create(one, 1, 2)
    one.append([Batch(ownership=Ownership(2, tree=2, epoch=1), entries=[ended(2)], written=1)])
    with connect(url) as holder, ThreadPoolExecutor() as threads:
        with holder.transaction():
            # It has the release wait.
            holder.execute("SELECT 1 FROM drives WHERE node = 2 FOR UPDATE")
            releasing = threads.submit(
                one.cluster.drives.release, Ownership(2, tree=2, epoch=1), parked=True
            )
            _wait_for_lock(url)
            end_lease(url, PID)
            assert other.cluster.drives.adopt(1) is not None
            assert one.cluster.members.beat(Load()) == Orders(lost=frozenset({1}))
        assert releasing.result()
    assert one.cluster.members.beat(Load()) == Orders()


def test_a_heartbeat_at_the_moment_of_an_adoption_hears_of_it(url: str, join: Join):
    one, other = join(pid=PID), join()
    other_id = max(row.id for row in other.cluster.members.workers())
    create(one, 1)
    end_lease(url, PID)
    with connect(url) as adopting, ThreadPoolExecutor() as threads:
        with adopting.transaction():
            adopting.execute("SELECT adopt(%s, 1, 0)", (other_id,))
            # The adoption is not committed.
            beating = threads.submit(one.cluster.members.beat, Load())
            wait_until(lambda: beating.done() or _waits_for_lock(url))
        assert beating.result() == Orders(lost=frozenset({1}))


def test_a_drive_that_was_released_is_not_taken_for_its_next_ownership(url: str, join: Join):
    one, other = join(pid=PID), join()
    create(one, 1)
    end_lease(url, PID)
    assert other.cluster.drives.adopt(1) is not None
    assert other.cluster.drives.release(Ownership(1, tree=1, epoch=2), parked=False)
    assert one.cluster.members.beat(Load()) == Orders(lost=frozenset({1}))
    revive(url)
    again = one.cluster.drives.adopt(1)
    assert again is not None
    # The release of what was lost comes late.
    assert one.cluster.drives.release(Ownership(1, tree=1, epoch=1), parked=False)
    assert one.append([Batch(ownership=again, entries=[noted(1, 2)], written=1)]) == [2]
    end_lease(url, PID)
    assert other.cluster.drives.adopt(1) is not None
    assert one.cluster.members.beat(Load()) == Orders(lost=frozenset({1}))


def test_another_server_may_lack_what_was_adopted_last(url: str, join: Join):
    one = join()
    create(one, 1, 2)
    with connect(url) as connection:
        connection.execute("UPDATE drives SET owner = NULL WHERE node = 2")
    change_server(url)
    assert one.cluster.members.beat(Load()) == Orders(lost=frozenset({2}))


class LatePool(Pool):
    """A pool in which replies may arrive late.

    Attributes:
        kept: for a word in a statement, the events that its reply has come, and may be read.
    """

    kept: dict[str, tuple[threading.Event, threading.Event]]

    def fetch(
        self,
        statement: LiteralString,
        values: Sequence[Any] | Mapping[str, Any] = (),
        *,
        binary: bool = False,
        timeout: float | None = None,
    ) -> list[tuple[Any, ...]]:
        found = super().fetch(statement, values, binary=binary, timeout=timeout)
        for word, (has_come, may_be_read) in self.kept.items():
            if f"{word}(" in statement:
                has_come.set()
                assert may_be_read.wait(PATIENCE)
        return found


@pytest.mark.parametrize("beats_before", [0, 1])
def test_a_drive_that_is_lost_before_its_owner_knows_of_it_is_reported(
    url: str, join: Join, beats_before: int
):
    other, pool = join(), LatePool(parse_url(url))
    pool.kept = {word: (threading.Event(), threading.Event()) for word in ("adopt", "beat")}
    (adopted, may_know), (beaten, may_hear) = pool.kept.values()
    ticket = Ticket(node=1)
    other.append([Batch(ownership=None, entries=[called(1)], tickets=[ticket])])
    one = Membership(pool)
    one.join(replace(info(), process=PID), LEASE)
    with ThreadPoolExecutor() as threads:
        adopting = threads.submit(DriveTable(pool, one).adopt, 1)
        assert adopted.wait(PATIENCE)
        end_lease(url, PID)
        assert other.cluster.drives.adopt(1) is not None
        if beats_before:
            may_hear.set()
            assert one.beat(Load()) == Orders()
            revive(url)
            may_hear.clear()
            beaten.clear()
        beating = threads.submit(one.beat, Load())
        assert beaten.wait(PATIENCE)
        revive(url)
        may_know.set()
        assert adopting.result() is not None
        may_hear.set()
        heard = [beating.result(), one.beat(Load())]
    pool.close()
    assert [orders for orders in heard if orders.lost] == [Orders(lost=frozenset({1}))]


def _wait_for_lock(url: str) -> None:
    wait_until(lambda: _waits_for_lock(url))


def _waits_for_lock(url: str) -> bool:
    """Whether a statement waits for a lock that another one has."""
    with connect(url) as connection:
        [(waiting,)] = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(waiting)
