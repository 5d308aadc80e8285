"""Tests of the ``Cluster`` protocol, which users can run on their own stores.

Every test of ``StoreSuite`` applies to such a store as well.
"""

import math
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from treefold.core.cluster import (
    Cluster,
    Drives,
    Load,
    Members,
    Orders,
    Owed,
    Ownership,
    SharedLimits,
    WorkerInfo,
)
from treefold.core.errors import FencedError, UnknownNodeError, UsageError
from treefold.core.fact import replace
from treefold.core.states import NodeState
from treefold.core.store import Batch, Entry, Store
from treefold.core.work_engine import Ticket
from treefold.testing.store_suite import (
    WORKER,
    StoreFixture,
    a_question,
    asks,
    at_once,
    called,
    changed,
    ended,
    noted,
    raises,
)

_LEASE: Final = 60.0  # seconds; no worker dies of itself
_SHORT: Final = 0.3  # seconds; for a worker that dies, and a drive that sleeps
_PATIENCE: Final = 30.0  # seconds


class ClusterSuite(StoreFixture):  # noqa: PLR0904 - a test for each sentence of the contract
    """Tests of the ``cluster`` of a store, beside those of ``StoreSuite``.

    Name a subclass ``Test...``, or give the one for ``StoreSuite`` both bases. ``make_store``
    returns a new, empty store, and ``reopen`` another object for the same journal, as another
    process would have.

    Example:
        >>> from treefold.stores import Store
        >>> from treefold.stores.postgres import PostgresStore
        >>> from treefold.testing import ClusterSuite, StoreSuite
        >>> class TestMyStore(StoreSuite, ClusterSuite):
        ...     url = "postgresql://localhost/test"
        ...     def make_store(self) -> Store:
        ...         return PostgresStore(f"{self.url}?schema=a_new_one")
        ...     def reopen(self, store: Store) -> Store:
        ...         return PostgresStore(f"{self.url}?schema=a_new_one")
    """

    # Joining

    def test_only_a_worker_has_drives(self) -> None:
        with self._opened() as store:
            for use in (
                lambda: store.append([_new(called(1))]),
                lambda: _drives(store).adopt(1),
                lambda: _drives(store).release(Ownership(1, 1, 1), parked=True),
                lambda: _members(store).beat(Load()),
                lambda: _members(store).worker,
                lambda: store.inbox(owned=True),
                lambda: store.done(1),
            ):
                raises(UsageError, use)
            assert (store.trees(), store.inbox(), _members(store).workers()) == ([], [], [])

    def test_a_tree_has_one_owner_until_it_is_closed(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            store.append([_new(called(1))])
            assert _drives(other).adopt(1) is None
            raises(UsageError, store.join)
            store.close()
            store.close()
            assert _drives(other).adopt(1) == Ownership(1, 1, 2, 1)
            assert [worker.drives for worker in _members(other).workers()] == [1]

    def test_messages_are_for_the_drive_that_their_node_belongs_to(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            store.append([_new(called(1), called(2, tree=1, parent=1)), _new(called(3))])
            for node in (2, 3, 1):
                assert other.post("stop", node=node)
            messages = store.inbox()
            assert [message.drive for message in messages] == [1, 3, 1]
            assert store.inbox(drives=[1, 9], owned=True) == [messages[0], messages[2]]
            assert other.inbox(drives=[3]) == [messages[1]]
            raises(UnknownNodeError, lambda: other.post("nobody", node=9))
            raises(UsageError, lambda: other.post("nobody"))

    # Writing

    def test_positions_are_counted_within_each_tree(self) -> None:
        with self._owned() as store:
            first = [_new(called(1)), _new(called(2))]
            assert store.append(first) == [1, 1]
            more = [_next(first[0], noted(1, 2), noted(1, 3)), _next(first[1], noted(2, 2))]
            assert store.append(more) == [3, 2]
            assert [entry.seq for entry in store.entries(1)] == [1, 2, 3]
            assert [entry.seq for entry in store.entries(2, after=1)] == [2]

    def test_batches_are_refused_one_by_one(self) -> None:
        with self._owned() as store:
            assert store.append([_new(called(1)), _new(called(2))]) == [1, 1]
            batches = [
                Batch(ownership=Ownership(1, 1, 2), entries=[noted(1, 2)], written=1),
                Batch(ownership=Ownership(2, 2, 1), entries=[noted(2, 2)], written=1),
                Batch(ownership=Ownership(9, 9, 3), entries=[noted(9, 2)], written=1),
                _new(called(3)),
                Batch(ownership=Ownership(2, 2, 1), entries=[noted(2, 5)], written=4),
            ]
            outcomes = store.append(batches)
            refused = [isinstance(outcome, FencedError) for outcome in outcomes]
            assert refused == [True, False, True, False, True]
            assert (outcomes[1], outcomes[3]) == (2, 1)
            assert [store.length(node) for node in (1, 2, 3, 9)] == [1, 2, 1, 0]
            assert all(store.name in str(outcome) for outcome in outcomes if outcome not in {1, 2})

    def test_entries_that_are_sent_again_are_written_once(self) -> None:
        with self._owned() as store:
            first = _new(called(1), noted(1, 2, "a", hash="aa"))
            more = replace(first, entries=[*first.entries, noted(1, 3), asks("1-1", 4)])
            last = _next(more, called(2, tree=1, parent=1), noted(1, 5))
            for _ in range(3):
                assert store.append([first]) == [2]
            for _ in range(3):
                assert store.append([more]) == [4]
            for _ in range(3):
                assert store.append([last]) == [6]
                assert store.append([first, last]) == [2, 6]
            assert [entry.seq for entry in store.entries(1)] == [1, 2, 3, 4, 5, 6]
            assert store.questions() == [a_question("1-1")]
            other = Batch(ownership=_own(1), entries=[noted(1, 7)], written=3)
            [outcome] = store.append([other])
            assert isinstance(outcome, FencedError)  # the fourth entry is another one

    def test_a_tree_that_nobody_owns_is_sent_again_though_it_was_adopted(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            ticket = Ticket(node=1, queue="gpu", priority=3)
            batch = Batch(ownership=None, entries=[called(1), noted(1, 2)], tickets=[ticket])
            assert store.append([batch]) == [2]
            assert _drives(store).owed(10) == [ticket]
            assert _drives(other).adopt(1) == Ownership(1, 1, 1, 2)
            assert store.append([batch]) == [2]
            owned = Batch(ownership=Ownership(1, 1, 1, 2), entries=[noted(1, 3)], written=2)
            [refused] = store.append([owned])
            assert isinstance(refused, FencedError)
            assert other.append([owned]) == [3]

    def test_an_imported_tree_without_a_ticket_is_not_owed(self) -> None:
        with self._owned() as store:
            batch = Batch(ownership=None, entries=[called(1), ended(1)])
            assert store.append([batch]) == [2]
            assert (_drives(store).owed(10), _drives(store).adopt(1)) == ([], None)

    def test_entries_of_one_batch_belong_to_one_tree(self) -> None:
        with self._owned() as store:
            raises(UsageError, lambda: store.append([_new(called(1), called(2))]))
            assert store.append([]) == []
            assert store.trees() == []

    def test_reserved_numbers_are_used_once(self) -> None:
        with self._opened() as store, self._opened(store) as other:
            node, number = _drives(store).reserve(100, 3)
            assert _drives(other).reserve(1) == (node + 100, number + 3)
            jobs = [lambda: [_drives(store).reserve(7, 1) for _ in range(20)] for _ in range(4)]
            found = at_once(jobs)
            firsts = sorted(one for block in found for one in block)
            assert firsts == [(node + 101 + 7 * n, number + 3 + n) for n in range(80)]

    # Ownership

    def test_an_adopted_drive_is_written_by_its_new_owner_alone(self) -> None:
        with self._owned() as store, self._opened(store) as dead:
            dead.join(_info("dead"), lease=_SHORT)
            dead.append([_new(called(1), noted(1, 2))])
            self._wait_for_death(store, "dead")
            found = _drives(store).adopt(1)
            assert found == Ownership(1, 1, 2, 2)
            late = Batch(ownership=_own(1), entries=[noted(1, 3)], written=2)
            [refused] = dead.append([late])
            assert isinstance(refused, FencedError)
            raises(FencedError, lambda: _drives(dead).adopt(9))
            assert _members(dead).beat(Load()) == Orders(lost=frozenset({1}))
            own = Batch(ownership=found, entries=[noted(1, 3)], written=2)
            assert store.append([own]) == [3]
            assert _drives(dead).release(_own(1), parked=True)  # which changes nothing
            dead.leave()
            assert store.append([replace(own, entries=[noted(1, 4)], written=3)]) == [4]

    def test_a_dead_worker_writes_as_long_as_nobody_has_adopted_its_drive(self) -> None:
        with self._owned() as store, self._opened(store) as dead:
            dead.join(_info("dead"), lease=_SHORT)
            first = _new(called(1))
            dead.append([first])
            self._wait_for_death(store, "dead")
            assert dead.append([_next(first, noted(1, 2))]) == [2]

    def test_a_worker_that_adopts_its_own_drive_gets_a_new_epoch(self) -> None:
        with self._owned() as store:
            store.append([_new(called(1))])
            assert _drives(store).adopt(1) == Ownership(1, 1, 2, 1)
            [refused] = store.append([Batch(ownership=_own(1), entries=[noted(1, 2)], written=1)])
            assert isinstance(refused, FencedError)
            again = _drives(store).adopt(1)
            assert again is not None
            assert again.attempts == 0

    def test_attempts_count_dead_owners_until_there_is_progress(self) -> None:
        with self._owned() as store, self._opened(store) as first, self._opened(store) as second:
            first.join(_info("first"), lease=_SHORT)
            ticket = Ticket(node=1)
            store.append([Batch(ownership=None, entries=[called(1)], tickets=[ticket])])
            assert _drives(first).adopt(1) is not None
            self._wait_for_death(store, "first")
            second.join(_info("second"), lease=_SHORT)
            owned = _drives(second).adopt(1)
            assert owned is not None
            assert owned.attempts == 1
            self._wait_for_death(store, "second")
            owned = _drives(store).adopt(1)
            assert owned is not None
            assert (owned, owned.attempts) == (Ownership(1, 1, 3, 1), 2)
            entries = [called(2, tree=1, parent=1), noted(1, 2)]
            store.append([Batch(ownership=owned, entries=entries, written=1)])
            owned = _drives(store).adopt(1)
            assert owned is not None
            assert owned.attempts == 2  # a call that begins may begin again
            end = ended(2, tree=1)
            store.append([Batch(ownership=owned, entries=[end], written=owned.written)])
            owned = _drives(store).adopt(1)
            assert owned is not None
            assert owned.attempts == 0

    def test_an_adoption_reserves_ids_and_tells_of_messages(self) -> None:
        with self._owned() as store:
            store.append([_new(called(1)), _new(called(2))])
            first, _ = _drives(store).reserve(1)
            owned = _drives(store).adopt(1, ids=64)
            assert owned is not None
            assert (owned.first_id, owned.has_messages) == (first + 1, False)
            assert _drives(store).reserve(1)[0] == first + 65
            assert store.post("{}", node=2)
            owned = _drives(store).adopt(2)
            assert owned is not None
            assert (owned.first_id, owned.has_messages) == (0, True)

    def test_a_release_makes_a_drive_owed_unless_it_is_parked_or_over(self) -> None:
        with self._owned() as store:
            store.append([_new(called(n)) for n in (1, 2, 3)])
            assert _drives(store).owed(10) == []
            assert store.append([_next(_new(called(3)), ended(3))]) == [2]
            released = [_drives(store).release(_own(n), parked=n == 2) for n in (1, 2, 3)]
            assert released == [True] * 3
            assert _drives(store).owed(10) == [Ticket(node=1)]
            assert _drives(store).release(_own(1), parked=True)  # again, and it is not owned
            assert _drives(store).owed(10) == [Ticket(node=1)]
            assert _drives(store).adopt(3) is None
            assert _drives(store).adopt(2) == Ownership(2, 2, 2, 1)
            assert _drives(store).adopt(99) is None

    def test_a_drive_with_messages_is_not_parked(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            store.append([_new(called(1), asks("1-1", 2))])
            assert other.post("yes", question="1-1")
            assert _drives(store).release(_own(1), parked=True) is False
            assert _members(store).beat(Load()) == Orders(messages=frozenset({1}))
            store.done(store.inbox(drives=[1], owned=True)[0].id)
            assert _drives(store).release(_own(1), parked=True) is True
            assert (_drives(store).owed(10), _drives(store).depth()) == ([], Owed())
            assert other.post("wake up", node=1)
            assert _drives(other).owed(10) == [Ticket(node=1)]
            assert _drives(other).depth().count == 1

    def test_a_drive_that_is_over_is_adopted_for_its_messages(self) -> None:
        with self._owned() as store:
            store.append([_new(called(1), ended(1))])
            assert _drives(store).release(_own(1), parked=False)
            assert store.post("fork", node=1)
            assert _drives(store).owed(10) == [Ticket(node=1)]
            owned = Ownership(1, 1, 2, 2)
            assert _drives(store).adopt(1) == owned
            store.done(store.inbox()[0].id)
            assert _drives(store).release(owned, parked=False)
            assert (_drives(store).owed(10), _drives(store).adopt(1)) == ([], None)

    def test_a_message_stays_if_another_worker_has_the_drive(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            store.append([_new(called(1))])
            other.post("stop", node=1)
            [message] = store.inbox()
            assert other.inbox(drives=[1], owned=True) == []
            other.done(message.id)
            assert store.inbox(drives=[1], owned=True) == [message]
            store.done(message.id)
            assert store.inbox() == []

    def test_a_message_stays_if_its_worker_has_lost_the_drive_and_nobody_has_it(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            store.append([_new(called(1))])
            other.post("stop", node=1)
            assert _drives(store).release(_own(1), parked=False)
            [message] = store.inbox()
            store.done(message.id)
            assert store.inbox() == [message]
            assert _drives(store).adopt(1) is not None
            store.done(message.id)
            assert store.inbox() == []

    def test_drives_of_a_worker_that_leaves_are_owed(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            other.join(_info(), lease=_LEASE)
            other.append([_new(called(1)), _new(called(2), ended(2))])
            assert [worker.drives for worker in _members(store).workers()] == [0, 2]
            other.leave()
            assert _drives(store).owed(10) == [Ticket(node=1)]
            assert [worker.info.name for worker in _members(store).workers()] == [WORKER]
            raises(UsageError, lambda: _members(other).beat(Load()))

    def test_a_call_with_a_ticket_is_a_drive_of_its_own(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            ticket = Ticket(node=2, queue="gpu", priority=1)
            first = Batch(
                ownership=_own(1),
                entries=[called(1), called(2, tree=1, parent=1), called(3, tree=1, parent=1)],
                tickets=[ticket],
            )
            assert store.append([first]) == [3]
            assert store.append([first]) == [3]
            assert _drives(store).owed(10) == [ticket]
            assert [_drives(store).ticket(n) for n in (1, 2, 3)] == [Ticket(node=1), ticket, None]
            assert (
                _drives(store).depth(["gpu"]).count,
                _drives(store).depth(["cpu"]).count,
            ) == (1, 0)
            owned = _drives(other).adopt(2)
            assert owned == Ownership(2, 1, 1, 0)
            below = Batch(ownership=owned, entries=[noted(2, 2, tree=1), asks("2-1", 3, tree=1)])
            assert other.append([below]) == [5]
            assert other.append([below]) == [5]
            assert store.append([_next(first, noted(1, 2))]) == [6]
            assert other.append([_next(below, noted(2, 4, tree=1))]) == [7]
            assert [entry.seq for entry in store.entries(1)] == list(range(1, 8))
            assert store.post("yes", question="2-1")
            assert (
                _members(store).beat(Load()).messages,
                _members(other).beat(Load()).messages,
            ) == (set(), {2})
            assert store.pending(1) == [a_question("2-1")]
            assert store.questions() == []
            assert store.post("for the tree", node=3)
            every = [1, 2, 3]
            assert {one.drive for one in store.inbox(drives=every, owned=True)} == {1}
            assert {one.drive for one in other.inbox(drives=every, owned=True)} == {2}

    def test_what_is_written_with_a_tree_may_belong_to_a_call_below_it(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            first = Batch(
                ownership=_own(1),
                entries=[called(1), called(2, tree=1, parent=1), called(3, tree=1, parent=2)],
                tickets=[Ticket(node=2)],
                drives={3: 2},
            )
            assert store.append([first]) == [3]
            assert store.append([first]) == [3]
            assert store.append([_next(first, asks("3-1", 2, tree=1))]) == [4]
            assert _drives(store).adopt(2) is not None
            assert other.post("yes", question="3-1")
            assert {one.drive for one in store.inbox(drives=[1, 2], owned=True)} == {2}

    def test_a_drive_is_not_parked_if_a_call_that_it_awaits_has_ended(self) -> None:
        with self._owned() as store, self._worker(store) as far:
            remote = self._call_remotely(store, far)
            far.append([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            assert _drives(store).release(_own(1), parked=True, awaited=[2]) is False
            assert _drives(far).release(remote, parked=True)
            assert _drives(store).release(_own(1), parked=True, awaited=[2]) is False
            # Its worker knows of the end now.
            assert _drives(store).release(_own(1), parked=True)
            assert (_drives(store).owed(10), _drives(store).depth()) == ([], Owed())

    def test_the_end_of_a_remote_call_wakes_the_parked_drive_of_its_caller(self) -> None:
        with self._owned() as store, self._worker(store) as far:
            remote = self._call_remotely(store, far)
            assert _drives(store).release(_own(1), parked=True, awaited=[2])
            far.append([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            assert _drives(store).owed(10) == []
            assert _drives(far).release(remote, parked=True)
            assert _drives(store).owed(10) == [Ticket(node=1)]
            assert _drives(store).adopt(1) == Ownership(1, 1, 2, 2)

    def test_a_worker_that_leaves_wakes_the_callers_of_what_it_has_ended(self) -> None:
        with self._owned() as store, self._opened(store) as far:
            far.join(_info("far"), lease=_LEASE)
            remote = self._call_remotely(store, far)
            assert _drives(store).release(_own(1), parked=True, awaited=[2])
            far.append([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            far.leave()
            assert _drives(store).owed(10) == [Ticket(node=1)]

    def test_a_caller_is_woken_though_the_worker_of_its_call_died_at_the_end(self) -> None:
        with self._owned() as store, self._opened(store) as far:
            far.join(_info("far"), lease=_SHORT)
            remote = self._call_remotely(store, far)
            assert _drives(store).release(_own(1), parked=True, awaited=[2])
            far.append([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            self._wait_for_death(store, "far")
            assert _drives(store).owed(10) == [Ticket(node=2, queue="gpu")]
            assert _drives(store).adopt(2) is None
            assert _drives(store).owed(10) == [Ticket(node=1)]

    def test_a_remote_call_that_is_run_once_more_is_owed(self) -> None:
        for is_released in (True, False):
            with self._owned() as store, self._worker(store) as far:
                remote = self._call_remotely(store, far)
                far.append([Batch(ownership=remote, entries=[ended(2, tree=1)])])
                if is_released:
                    assert _drives(far).release(remote, parked=True)
                again = Batch(
                    ownership=_own(1),
                    entries=[changed(2, 3, NodeState.Running, tree=1)],
                    written=2,
                    reopened=[2],
                )
                store.append([again])
                # The worker that has run it knows of its end only.
                assert _drives(far).release(remote, parked=True)
                assert _drives(store).owed(10) == [Ticket(node=2, queue="gpu")]
                assert _drives(far).adopt(2) is not None
                # It is sent again after a lost connection, and changes nothing.
                store.append([again])
                assert _drives(store).adopt(2) is None

    def test_a_parked_drive_is_owed_when_its_time_has_come(self) -> None:
        with self._owned() as store:
            store.append([Batch(ownership=_own(1), entries=[called(1)])])
            assert _drives(store).release(_own(1), parked=True, wake_in=_SHORT)
            assert (_drives(store).owed(10), _drives(store).depth()) == ([], Owed())
            self._wait_for(lambda: [ticket.node for ticket in _drives(store).owed(10)] == [1])
            again = _drives(store).adopt(1)
            assert again is not None
            # However long that is.
            assert _drives(store).release(again, parked=True, wake_in=math.inf)
            assert _drives(store).owed(10) == []

    def test_a_message_and_the_end_of_a_call_wake_a_drive_before_its_time_has_come(self) -> None:
        with self._owned() as store, self._worker(store) as far:
            remote = self._call_remotely(store, far)
            assert _drives(store).release(_own(1), parked=True, awaited=[2], wake_in=3600.0)
            far.append([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            assert _drives(far).release(remote, parked=True)
            assert _drives(store).owed(10) == [Ticket(node=1)]
            again = _drives(store).adopt(1)
            assert again is not None
            assert _drives(store).release(again, parked=True, wake_in=3600.0)
            assert store.post("a message", node=1)
            assert _drives(store).owed(10) == [Ticket(node=1)]

    def _call_remotely(self, store: Store, far: Store) -> Ownership:
        """Have tree 1 of *store* make call 2, which *far* adopts; return what *far* owns then."""
        calls = [called(1), called(2, tree=1, parent=1)]
        ticket = Ticket(node=2, queue="gpu")
        store.append([Batch(ownership=_own(1), entries=calls, tickets=[ticket])])
        owned = _drives(far).adopt(2)
        assert owned is not None
        return owned

    def test_what_is_owed_is_listed_by_age(self) -> None:
        with self._owned() as store:
            for node, priority in ((1, 0), (2, 5), (3, 0), (4, 5)):
                ticket = Ticket(node=node, priority=priority)
                batch = Batch(ownership=None, entries=[called(node)], tickets=[ticket])
                store.append([batch])
            far = time.time() + 3600
            late = Ticket(node=5, priority=9, not_before=far)
            store.append([Batch(ownership=None, entries=[called(5)], tickets=[late])])
            assert [ticket.node for ticket in _drives(store).owed(10)] == [1, 2, 3, 4]
            assert [ticket.node for ticket in _drives(store).owed(3)] == [1, 2, 3]
            assert _drives(store).owed(10, older_than=3000) == []
            depth = _drives(store).depth()
            assert depth.count == 4
            assert 0 < depth.oldest < 3000

    def test_what_is_owed_is_read_by_queue_and_in_pages(self) -> None:
        with self._owned() as store:
            tickets = [
                Ticket(node=node, queue=queue, priority=priority)
                for node, queue, priority in ((1, "cpu", 0), (2, "gpu", 0), (3, "gpu", 5))
            ]
            for ticket in tickets:
                batch = Batch(ownership=None, entries=[called(ticket.node)], tickets=[ticket])
                store.append([batch])
            first, second, third = tickets
            assert _drives(store).owed(10, queues=["gpu"]) == [second, third]
            assert _drives(store).owed(1, queues=["gpu", "cpu"]) == [first]
            assert _drives(store).owed(10, queues=["tpu"]) == []
            assert _drives(store).owed(2) == [first, second]
            assert _drives(store).owed(2, after=2) == [third]
            assert _drives(store).owed(2, after=3) == _drives(store).owed(2, after=4) == []
            assert _drives(store).owed(10, queues=["gpu"], after=1) == [second, third]
            assert _drives(store).owed(10, queues=["gpu"], after=2) == [third]
            assert _drives(store).owed(10, queues=["gpu"], after=2, older_than=3000) == []

    def test_workers_are_listed_until_they_leave(self) -> None:
        with self._opened() as store, self._opened(store) as other:
            info = WorkerInfo(
                name="é", host="h", process=7, functions=("f", "g"), queues=("default",)
            )
            assert not store.join(info, lease=_LEASE)
            other.join(_info(), lease=_LEASE)
            first, second = _members(store).worker, _members(other).worker
            load = Load(running=2, waiting=1, slots=50, draining=True)
            assert _members(store).beat(load) == Orders()
            rows = _members(other).workers()
            assert [(row.id, row.info.name, row.alive) for row in rows] == [
                (first, "é", True),
                (second, WORKER, True),
            ]
            assert (rows[0].info, rows[0].load) == (info, load)
            assert 0 <= rows[0].seen < _LEASE
            _members(other).drain(first)
            assert _members(store).beat(Load()).drain
            assert not _members(other).beat(Load()).drain
            raises(UsageError, lambda: _members(store).drain(second + 99))
            assert store.is_owned()

    def test_a_worker_that_counted_as_dead_lives_again_without_what_others_adopted(self) -> None:
        with self._owned() as store, self._opened(store) as late:
            late.join(_info("late"), lease=_SHORT)
            late.append([_new(called(1)), _new(called(2))])
            self._wait_for_death(store, "late")
            assert [ticket.node for ticket in _drives(store).owed(10)] == [1, 2]
            assert _drives(store).adopt(2) is not None
            assert _members(late).beat(Load()) == Orders(lost=frozenset({2}))
            assert _drives(store).adopt(1) is None
            assert _drives(late).adopt(2) is None
            assert _members(late).beat(Load()) == Orders()

    def test_a_drive_that_is_gone_is_reported_as_lost_once(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            store.append([_new(called(1), ended(1)), _new(called(2))])
            assert _members(store).beat(Load()) == Orders()
            other.delete(1)
            assert _members(store).beat(Load()) == Orders(lost=frozenset({1}))
            assert _members(store).beat(Load()) == Orders()

    # Limits

    def test_slots_are_those_of_all_workers_together(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            assert _limits(store).set_slots({"é": 2}, limits={"é": 3})
            assert not _limits(other).set_slots({"é": 2}, limits={"é": 3})
            assert _limits(other).set_slots({"é": 1}, limits={"é": 3})
            assert not _limits(store).set_slots({"é": 3}, limits={"é": 3})
            assert _limits(other).set_slots({"é": 0})
            assert _limits(store).set_slots({"é": 3}, limits={"é": 3})

    def test_slots_of_several_limits_are_set_together(self) -> None:
        with self._owned() as store, self._worker(store) as other:
            assert _limits(store).set_slots({"a": 1}, limits={"a": 1})
            both = {"a": 1, "b": 1}
            assert not _limits(other).set_slots(both, limits=both)
            assert _limits(store).set_slots({"b": 1}, limits={"b": 1})
            assert _limits(store).set_slots({"a": 0, "b": 0})
            assert _limits(other).set_slots(both, limits=both)

    def test_slots_of_a_worker_count_as_long_as_it_is_alive_and_when_it_lives_again(self) -> None:
        with self._owned() as store, self._opened(store) as late:
            late.join(_info("late"), lease=_SHORT)
            assert _limits(late).set_slots({"a": 1}, limits={"a": 1})
            self._wait_for_death(store, "late")
            assert not _limits(late).set_slots({"a": 1}, limits={"a": 9})
            assert _limits(store).set_slots({"a": 1}, limits={"a": 1})
            assert _limits(store).set_slots({"a": 0})
            _members(late).beat(Load())
            assert not _limits(store).set_slots({"a": 1}, limits={"a": 1})
            _limits(late).set_slots({"a": 0})
            assert _limits(store).set_slots({"a": 1}, limits={"a": 1})

    def test_slots_of_a_worker_that_leaves_are_free(self) -> None:
        with self._owned() as store:
            with self._worker(store) as other:
                assert _limits(other).set_slots({"a": 1}, limits={"a": 1})
                assert not _limits(store).set_slots({"a": 1}, limits={"a": 1})
            assert _limits(store).set_slots({"a": 1}, limits={"a": 1})

    # Parking and posting

    def test_no_message_is_lost_between_parking_and_posting(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            store.append([_new(called(1))])
            owned, rounds = _own(1), 60
            start = threading.Barrier(2, timeout=_PATIENCE)

            def post() -> list[Any]:
                for _ in range(rounds):
                    start.wait()
                    assert other.post("wake up", node=1)
                    start.wait()
                return []

            def park() -> list[Any]:
                found: list[bool] = []
                nonlocal owned
                for _ in range(rounds):
                    start.wait()
                    released = _drives(store).release(owned, parked=True)
                    start.wait()
                    # Either the owner has seen it, or the drive is owed.
                    assert released == (_drives(store).owed(1) == [Ticket(node=1)])
                    if released:
                        adopted = _drives(store).adopt(1)
                        assert adopted is not None
                        owned = adopted
                    for message in store.inbox():
                        store.done(message.id)
                    found.append(released)
                return found

            assert len(at_once([post, park])[1]) == rounds

    # Other processes

    def test_listeners_are_woken_when_something_is_written_or_posted(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            woken: set[int] = set()
            wake = threading.Event()

            def note(trees: Any) -> None:
                woken.update(trees)
                wake.set()

            subscription = cluster_of(other).listen(note)
            store.append([_new(called(4), asks("4-1", 2))])
            self._wait_for(lambda: 4 in woken)
            store.append([_new(called(5))])
            self._wait_for(lambda: 5 in woken)
            woken.clear()
            store.post("yes", question="4-1")
            self._wait_for(lambda: 4 in woken)
            subscription.close()
            subscription.close()
            woken.clear()
            store.append([_new(called(6))])
            assert 6 not in woken

    def test_the_last_number_grows_when_something_is_posted(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            numbers = [other.last()]
            store.append([_new(called(1), asks("1-1", 2))])
            numbers.append(other.last())
            store.post("stop", node=1)
            numbers.append(other.last())
            store.post("yes", question="1-1")
            numbers.append(other.last())
            assert numbers == sorted(set(numbers))

    def test_broadcasts_reach_those_who_read_them(self) -> None:
        with self._owned() as store, self._opened(store) as other:
            position, lines = other.read_broadcasts()
            assert lines == []
            store.broadcast("é \0 1")
            store.broadcast("2")
            found: list[str] = []

            def has_both() -> bool:
                nonlocal position
                position, new = other.read_broadcasts(position)
                found.extend(new)
                return len(found) == 2

            self._wait_for(has_both)
            assert found == ["é \0 1", "2"]
            assert other.read_broadcasts(position) == (position, [])

    # Helpers

    @contextmanager
    def _worker(self, other: Store) -> Generator[Store]:
        """Join the journal of *other* as another worker."""
        with self._opened(other) as store:
            store.join(_info(), lease=_LEASE)
            yield store

    def _wait_for_death(self, store: Store, name: str) -> None:
        self._wait_for(
            lambda: not any(row.alive for row in _members(store).workers() if row.info.name == name)
        )


def cluster_of(store: Store) -> Cluster:
    """Return the cluster that *store* has."""
    assert store.cluster is not None
    return store.cluster


def _drives(store: Store) -> Drives:
    return cluster_of(store).drives


def _members(store: Store) -> Members:
    return cluster_of(store).members


def _limits(store: Store) -> SharedLimits:
    return cluster_of(store).limits


def _info(name: str = WORKER) -> WorkerInfo:
    return WorkerInfo(name=name)


def _own(tree: int) -> Ownership:
    """Return the ownership of a whole tree that its first worker has."""
    return Ownership(tree, tree, 1)


def _new(*entries: Entry) -> Batch:
    """Return a batch that creates a tree, owned by the worker."""
    return Batch(ownership=_own(entries[0].tree), entries=entries)


def _next(batch: Batch, *entries: Entry) -> Batch:
    """Return a batch that follows *batch*."""
    written = batch.written + len(batch.entries)
    return Batch(ownership=batch.ownership, entries=entries, written=written)
