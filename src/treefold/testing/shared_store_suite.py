"""Tests of the ``SharedStore`` protocol, which users can run on their own stores.

Every test of ``StoreSuite`` applies as well, with entries that are written by a worker.
"""

import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from treefold.core.errors import FencedError, StoreError, UnknownNodeError, UsageError
from treefold.core.fact import replace
from treefold.core.shared_store import (
    Batch,
    Load,
    Orders,
    Owed,
    Ownership,
    SharedStore,
    Ticket,
    WorkerInfo,
    is_shared,
)
from treefold.core.store import Entry, Store
from treefold.testing.store_suite import (
    StoreSuite,
    a_question,
    asks,
    at_once,
    called,
    closing,
    ended,
    noted,
    raises,
)

_WORKER: Final = "suite"
_LEASE: Final = 60.0  # seconds; no worker dies of itself
_SHORT: Final = 0.3  # seconds; for a worker that dies, and a drive that sleeps
_PATIENCE: Final = 30.0  # seconds

Drives = dict[int, tuple[Ownership, int]]  # by tree, with the number of entries written


class SharedStoreSuite(StoreSuite):  # noqa: PLR0904 - a test for each sentence of the contract
    """Tests of a shared store: name a subclass ``Test...``, and implement how a store is created.

    ``make_store`` returns a new, empty store, and ``reopen`` another object for the same journal,
    as another process would have.

    Example:
        >>> from treefold.stores import Store
        >>> from treefold.stores.postgres import PostgresStore
        >>> from treefold.testing import SharedStoreSuite
        >>> class TestMyStore(SharedStoreSuite):
        ...     url = "postgresql://localhost/test"
        ...     def make_store(self) -> Store:
        ...         return PostgresStore(f"{self.url}?schema=a_new_one")
        ...     def reopen(self, store: Store) -> Store:
        ...         return PostgresStore(f"{self.url}?schema=a_new_one")
    """

    _worker_name = _WORKER

    # What differs from a store with one owner

    def test_a_new_store_is_empty(self) -> None:
        with closing(self.make_store()) as store:
            assert (store.trees(), store.questions(), store.inbox()) == ([], [], [])
            assert (store.highest(), store.length(1), store.find(node=1)) == ((0, 0), 0, None)
            assert (store.find_key("a"), store.entries(1), store.is_owned()) == (None, [], False)

    def test_positions_are_counted_over_all_trees(self) -> None:
        """Check that they are counted within each tree."""
        with self._owned() as store:
            assert self._append(store, [called(1), called(2)]) == 1
            assert self._append(store, [noted(1, 2), noted(1, 3), noted(2, 2)]) == 2
            assert [entry.seq for entry in store.entries(1)] == [1, 2, 3]
            assert [entry.seq for entry in store.entries(2, after=1)] == [2]

    def test_only_the_owner_may_write(self) -> None:
        with self._shared() as store:
            for write in (
                lambda: store.append_batches([_new(called(1))]),
                lambda: store.adopt(1),
                lambda: store.beat(Load()),
                lambda: store.release(Ownership(1, 1, 1), parked=True),
                lambda: store.done(1),
                store.acquire,
                lambda: store.append([called(1)]),
                lambda: store.post("hello"),
            ):
                raises(UsageError, write)
            assert (store.trees(), store.inbox(), store.workers()) == ([], [], [])

    def test_a_journal_has_one_owner_until_it_is_closed(self) -> None:
        """Check that a tree has one owner until it is closed."""
        with self._worker() as store, self._worker(store) as other:
            store.append_batches([_new(called(1))])
            assert other.adopt(1) is None
            raises(UsageError, lambda: store.join(_info(), lease=_LEASE))
            store.close()
            store.close()
            assert other.adopt(1) == Ownership(1, 1, 2, 1)
            assert [worker.drives for worker in other.workers()] == [1]

    def test_nothing_of_a_batch_is_kept_if_a_number_or_a_key_is_taken(self) -> None:
        with self._worker() as store:
            first = _new(called(1, key="a"), called(2, tree=1, parent=1, key="b"), noted(1, 2))
            assert store.append_batches([first]) == [3]
            before = self._content(store)
            for refused in (
                [noted(1, 2)],
                [noted(1, 3), noted(1, 3)],
                [called(3, tree=1, parent=1, key="b")],
                [replace(called(1, key="d"), number=9)],
            ):
                entries = [
                    noted(1, 9, "a new text", hash="ff"),
                    replace(noted(1, 10), question=a_question("1-1")),
                    *refused,
                ]
                for odd in (entries, entries[::-1]):
                    [outcome] = store.append_batches([_next(first, *odd)])
                    assert isinstance(outcome, FencedError)
                    assert self._content(store) == before
                raises(StoreError, lambda: store.text("ff"))
            [outcome] = store.append_batches([_new(called(3, key="a"))])
            assert isinstance(outcome, FencedError)
            assert self._content(store) == before
            assert store.append_batches([_next(first, noted(1, 3))]) == [4]

    def test_messages_stay_in_order_until_they_are_done(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            store.append_batches([_new(called(1), called(2, tree=1, parent=1)), _new(called(3))])
            posted = [
                other.post_to(2, "first"),
                store.post_to(3, "é \0"),
                other.post_to(1, "first"),
            ]
            assert posted == [True] * 3
            messages = store.inbox()
            assert [message.body for message in messages] == ["first", "é \0", "first"]
            assert other.inbox() == messages
            assert store.inbox_of([1, 3, 9]) == {
                1: [messages[0], messages[2]],
                3: [messages[1]],
            }
            raises(UnknownNodeError, lambda: other.post_to(9, "nobody"))
            store.done(messages[0].id)
            store.done(messages[0].id)
            assert store.inbox() == messages[1:]

    def test_the_trees_of_several_nodes_are_found_at_once(self) -> None:
        with self._worker() as store:
            store.append_batches([_new(called(1), called(2, tree=1, parent=1), ended(1))])
            store.append_batches([_new(called(3, source=1, inherited=2))])
            assert store.find_all([0, 1, 2, 3, 5, 6, 2**80]) == {1: 1, 2: 1, 3: 3, 5: 3}
            assert store.find_all([]) == {}

    def _check_places(self, places: Sequence[Sequence[int]]) -> None:
        assert list(map(list, places)) == [list(range(3, 60, 2))] * 3

    # Writing

    def test_batches_are_refused_one_by_one(self) -> None:
        with self._worker() as store:
            assert store.append_batches([_new(called(1)), _new(called(2))]) == [1, 1]
            batches = [
                Batch(ownership=Ownership(1, 1, 2), entries=[noted(1, 2)], written=1),
                Batch(ownership=Ownership(2, 2, 1), entries=[noted(2, 2)], written=1),
                Batch(ownership=Ownership(9, 9, 3), entries=[noted(9, 2)], written=1),
                _new(called(3)),
                Batch(ownership=Ownership(2, 2, 1), entries=[noted(2, 5)], written=4),
            ]
            outcomes = store.append_batches(batches)
            refused = [isinstance(outcome, FencedError) for outcome in outcomes]
            assert refused == [True, False, True, False, True]
            assert (outcomes[1], outcomes[3]) == (2, 1)
            assert [store.length(node) for node in (1, 2, 3, 9)] == [1, 2, 1, 0]
            assert all(store.name in str(outcome) for outcome in outcomes if outcome not in {1, 2})

    def test_entries_that_are_sent_again_are_written_once(self) -> None:
        with self._worker() as store:
            first = _new(called(1), noted(1, 2, "a", hash="aa"))
            more = replace(first, entries=[*first.entries, noted(1, 3), asks("1-1", 4)])
            last = _next(more, called(2, tree=1, parent=1), noted(1, 5))
            for _ in range(3):
                assert store.append_batches([first]) == [2]
            for _ in range(3):
                assert store.append_batches([more]) == [4]
            for _ in range(3):
                assert store.append_batches([last]) == [6]
                assert store.append_batches([first, last]) == [2, 6]
            assert [entry.seq for entry in store.entries(1)] == [1, 2, 3, 4, 5, 6]
            assert store.questions() == [a_question("1-1")]
            other = Batch(ownership=_own(1), entries=[noted(1, 7)], written=3)
            [outcome] = store.append_batches([other])
            assert isinstance(outcome, FencedError)  # the fourth entry is another one

    def test_a_tree_that_nobody_owns_is_sent_again_though_it_was_adopted(self) -> None:
        with self._worker() as store, self._worker(store) as other:
            ticket = Ticket(node=1, queue="gpu", priority=3)
            batch = Batch(ownership=None, entries=[called(1), noted(1, 2)], tickets=[ticket])
            assert store.append_batches([batch]) == [2]
            assert store.owed(10) == [ticket]
            assert other.adopt(1) == Ownership(1, 1, 1, 2)
            assert store.append_batches([batch]) == [2]
            owned = Batch(ownership=Ownership(1, 1, 1, 2), entries=[noted(1, 3)], written=2)
            [refused] = store.append_batches([owned])
            assert isinstance(refused, FencedError)
            assert other.append_batches([owned]) == [3]

    def test_an_imported_tree_without_a_ticket_is_not_owed(self) -> None:
        with self._worker() as store:
            batch = Batch(ownership=None, entries=[called(1), ended(1)])
            assert store.append_batches([batch]) == [2]
            assert (store.owed(10), store.adopt(1)) == ([], None)

    def test_entries_of_one_batch_belong_to_one_tree(self) -> None:
        with self._worker() as store:
            raises(UsageError, lambda: store.append_batches([_new(called(1), called(2))]))
            assert store.append_batches([]) == []
            assert store.trees() == []

    def test_reserved_numbers_are_used_once(self) -> None:
        with self._shared() as store, self._shared(store) as other:
            node, number = store.reserve(100, 3)
            assert other.reserve(1) == (node + 100, number + 3)
            found = at_once([lambda: [store.reserve(7, 1) for _ in range(20)] for _ in range(4)])
            firsts = sorted(one for block in found for one in block)
            assert firsts == [(node + 101 + 7 * n, number + 3 + n) for n in range(80)]

    # Ownership

    def test_an_adopted_drive_is_written_by_its_new_owner_alone(self) -> None:
        with self._worker() as store, self._shared(store) as dead:
            dead.join(_info("dead"), lease=_SHORT)
            dead.append_batches([_new(called(1), noted(1, 2))])
            self._wait_for_death(store, "dead")
            found = store.adopt(1)
            assert found == Ownership(1, 1, 2, 2)
            late = Batch(ownership=_own(1), entries=[noted(1, 3)], written=2)
            [refused] = dead.append_batches([late])
            assert isinstance(refused, FencedError)
            raises(FencedError, lambda: dead.adopt(9))
            assert dead.beat(Load()) == Orders(lost=frozenset({1}))
            own = Batch(ownership=found, entries=[noted(1, 3)], written=2)
            assert store.append_batches([own]) == [3]
            assert dead.release(_own(1), parked=True)  # which changes nothing
            dead.leave()
            assert store.append_batches([replace(own, entries=[noted(1, 4)], written=3)]) == [4]

    def test_a_dead_worker_writes_as_long_as_nobody_has_adopted_its_drive(self) -> None:
        with self._worker() as store, self._shared(store) as dead:
            dead.join(_info("dead"), lease=_SHORT)
            first = _new(called(1))
            dead.append_batches([first])
            self._wait_for_death(store, "dead")
            assert dead.append_batches([_next(first, noted(1, 2))]) == [2]

    def test_a_worker_that_adopts_its_own_drive_gets_a_new_epoch(self) -> None:
        with self._worker() as store:
            store.append_batches([_new(called(1))])
            assert store.adopt(1) == Ownership(1, 1, 2, 1)
            [refused] = store.append_batches([
                Batch(ownership=_own(1), entries=[noted(1, 2)], written=1)
            ])
            assert isinstance(refused, FencedError)
            assert store.attempts(1) == 0

    def test_attempts_count_dead_owners_until_there_is_progress(self) -> None:
        with self._worker() as store, self._shared(store) as first, self._shared(store) as second:
            first.join(_info("first"), lease=_SHORT)
            ticket = Ticket(node=1)
            store.append_batches([Batch(ownership=None, entries=[called(1)], tickets=[ticket])])
            assert first.adopt(1) is not None
            self._wait_for_death(store, "first")
            second.join(_info("second"), lease=_SHORT)
            assert second.adopt(1) is not None
            assert second.attempts(1) == 1
            self._wait_for_death(store, "second")
            owned = store.adopt(1)
            assert owned == Ownership(1, 1, 3, 1)
            assert store.attempts(1) == 2
            entries = [called(2, tree=1, parent=1), noted(1, 2)]
            batch = Batch(ownership=owned, entries=entries, written=1)
            store.append_batches([batch])
            assert store.attempts(1) == 2  # a call that begins may begin again
            store.append_batches([_next(batch, ended(2, tree=1))])
            assert store.attempts(1) == 0

    def test_a_release_makes_a_drive_owed_unless_it_is_parked_or_over(self) -> None:
        with self._worker() as store:
            store.append_batches([_new(called(n)) for n in (1, 2, 3)])
            assert store.owed(10) == []
            assert store.append_batches([_next(_new(called(3)), ended(3))]) == [2]
            released = [store.release(_own(n), parked=n == 2) for n in (1, 2, 3)]
            assert released == [True] * 3
            assert store.owed(10) == [Ticket(node=1)]
            assert store.release(_own(1), parked=True)  # again, and it is not owned
            assert store.owed(10) == [Ticket(node=1)]
            assert store.adopt(3) is None
            assert store.adopt(2) == Ownership(2, 2, 2, 1)
            assert store.adopt(99) is None

    def test_a_drive_with_messages_is_not_parked(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            store.append_batches([_new(called(1), asks("1-1", 2))])
            assert other.post("yes", question="1-1")
            assert store.release(_own(1), parked=True) is False
            assert store.beat(Load()) == Orders(messages=frozenset({1}))
            store.done(store.inbox_of([1])[1][0].id)
            assert store.release(_own(1), parked=True) is True
            assert (store.owed(10), store.depth()) == ([], Owed())
            assert other.post_to(1, "wake up")
            assert other.owed(10) == [Ticket(node=1)]
            assert other.depth().count == 1

    def test_a_drive_that_is_over_is_adopted_for_its_messages(self) -> None:
        with self._worker() as store:
            store.append_batches([_new(called(1), ended(1))])
            assert store.release(_own(1), parked=False)
            assert store.post_to(1, "fork")
            assert store.owed(10) == [Ticket(node=1)]
            owned = Ownership(1, 1, 2, 2)
            assert store.adopt(1) == owned
            store.done(store.inbox()[0].id)
            assert store.release(owned, parked=False)
            assert (store.owed(10), store.adopt(1)) == ([], None)

    def test_a_message_stays_if_another_worker_has_the_drive(self) -> None:
        with self._worker() as store, self._worker(store) as other:
            store.append_batches([_new(called(1))])
            other.post_to(1, "stop")
            [message] = store.inbox()
            other.done(message.id)
            assert store.inbox() == [message]
            store.done(message.id)
            assert store.inbox() == []

    def test_drives_of_a_worker_that_leaves_are_owed(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            other.join(_info(), lease=_LEASE)
            other.append_batches([_new(called(1)), _new(called(2), ended(2))])
            assert [worker.drives for worker in store.workers()] == [0, 2]
            other.leave()
            assert store.owed(10) == [Ticket(node=1)]
            assert [worker.info.name for worker in store.workers()] == [_WORKER]
            raises(UsageError, lambda: other.beat(Load()))

    def test_a_call_with_a_ticket_is_a_drive_of_its_own(self) -> None:
        with self._worker() as store, self._worker(store) as other:
            ticket = Ticket(node=2, queue="gpu", priority=1)
            first = Batch(
                ownership=_own(1),
                entries=[called(1), called(2, tree=1, parent=1), called(3, tree=1, parent=1)],
                tickets=[ticket],
            )
            assert store.append_batches([first]) == [3]
            assert store.append_batches([first]) == [3]
            assert store.owed(10) == [ticket]
            assert [store.ticket(n) for n in (1, 2, 3)] == [Ticket(node=1), ticket, None]
            assert (store.depth(["gpu"]).count, store.depth(["cpu"]).count) == (1, 0)
            owned = other.adopt(2)
            assert owned == Ownership(2, 1, 1, 0)
            below = Batch(ownership=owned, entries=[noted(2, 2, tree=1), asks("2-1", 3, tree=1)])
            assert other.append_batches([below]) == [5]
            assert other.append_batches([below]) == [5]
            assert store.append_batches([_next(first, noted(1, 2))]) == [6]
            assert other.append_batches([_next(below, noted(2, 4, tree=1))]) == [7]
            assert [entry.seq for entry in store.entries(1)] == list(range(1, 8))
            assert store.post("yes", question="2-1")
            assert (store.beat(Load()).messages, other.beat(Load()).messages) == (set(), {2})
            assert store.pending(1) == [a_question("2-1")]
            assert store.questions() == []
            assert store.post_to(3, "for the tree")
            assert set(store.inbox_of([1, 2, 3])) == {1, 2}

    def test_what_is_written_with_a_tree_may_belong_to_a_call_below_it(self) -> None:
        with self._worker() as store, self._worker(store) as other:
            first = Batch(
                ownership=_own(1),
                entries=[called(1), called(2, tree=1, parent=1), called(3, tree=1, parent=2)],
                tickets=[Ticket(node=2)],
                drives={3: 2},
            )
            assert store.append_batches([first]) == [3]
            assert store.append_batches([first]) == [3]
            assert store.append_batches([_next(first, asks("3-1", 2, tree=1))]) == [4]
            assert other.post("yes", question="3-1")
            assert set(store.inbox_of([1, 2])) == {2}

    def test_a_drive_is_not_parked_if_a_call_that_it_awaits_has_ended(self) -> None:
        with self._worker() as store, self._worker(store) as far:
            remote = self._call_remotely(store, far)
            far.append_batches([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            assert store.release(_own(1), parked=True, awaited=[2]) is False
            assert far.release(remote, parked=True)
            assert store.release(_own(1), parked=True, awaited=[2]) is False
            # Its worker knows of the end now.
            assert store.release(_own(1), parked=True)
            assert (store.owed(10), store.depth()) == ([], Owed())

    def test_the_end_of_a_remote_call_wakes_the_parked_drive_of_its_caller(self) -> None:
        with self._worker() as store, self._worker(store) as far:
            remote = self._call_remotely(store, far)
            assert store.release(_own(1), parked=True, awaited=[2])
            far.append_batches([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            assert store.owed(10) == []
            assert far.release(remote, parked=True)
            assert store.owed(10) == [Ticket(node=1)]
            assert store.adopt(1) == Ownership(1, 1, 2, 2)

    def test_a_worker_that_leaves_wakes_the_callers_of_what_it_has_ended(self) -> None:
        with self._worker() as store, self._shared(store) as far:
            far.join(_info("far"), lease=_LEASE)
            remote = self._call_remotely(store, far)
            assert store.release(_own(1), parked=True, awaited=[2])
            far.append_batches([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            far.leave()
            assert store.owed(10) == [Ticket(node=1)]

    def test_a_caller_is_woken_though_the_worker_of_its_call_died_at_the_end(self) -> None:
        with self._worker() as store, self._shared(store) as far:
            far.join(_info("far"), lease=_SHORT)
            remote = self._call_remotely(store, far)
            assert store.release(_own(1), parked=True, awaited=[2])
            far.append_batches([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            self._wait_for_death(store, "far")
            assert store.owed(10) == [Ticket(node=2, queue="gpu")]
            assert store.adopt(2) is None
            assert store.owed(10) == [Ticket(node=1)]

    def test_a_parked_drive_is_owed_when_its_time_has_come(self) -> None:
        with self._worker() as store:
            store.append_batches([Batch(ownership=_own(1), entries=[called(1)])])
            assert store.release(_own(1), parked=True, wake_in=_SHORT)
            assert (store.owed(10), store.depth()) == ([], Owed())
            self._wait_for(lambda: [ticket.node for ticket in store.owed(10)] == [1])
            again = store.adopt(1)
            assert again is not None
            # However long that is.
            assert store.release(again, parked=True, wake_in=math.inf)
            assert store.owed(10) == []

    def test_a_message_and_the_end_of_a_call_wake_a_drive_before_its_time_has_come(self) -> None:
        with self._worker() as store, self._worker(store) as far:
            remote = self._call_remotely(store, far)
            assert store.release(_own(1), parked=True, awaited=[2], wake_in=3600.0)
            far.append_batches([Batch(ownership=remote, entries=[ended(2, tree=1)])])
            assert far.release(remote, parked=True)
            assert store.owed(10) == [Ticket(node=1)]
            again = store.adopt(1)
            assert again is not None
            assert store.release(again, parked=True, wake_in=3600.0)
            assert store.post_to(1, "a message")
            assert store.owed(10) == [Ticket(node=1)]

    def _call_remotely(self, store: SharedStore, far: SharedStore) -> Ownership:
        """Have tree 1 of *store* make call 2, which *far* adopts; return what *far* owns then."""
        calls = [called(1), called(2, tree=1, parent=1)]
        ticket = Ticket(node=2, queue="gpu")
        store.append_batches([Batch(ownership=_own(1), entries=calls, tickets=[ticket])])
        owned = far.adopt(2)
        assert owned is not None
        return owned

    def test_what_is_owed_is_listed_by_priority_and_age(self) -> None:
        with self._worker() as store:
            for node, priority in ((1, 0), (2, 5), (3, 0), (4, 5)):
                ticket = Ticket(node=node, priority=priority)
                batch = Batch(ownership=None, entries=[called(node)], tickets=[ticket])
                store.append_batches([batch])
            far = time.time() + 3600
            late = Ticket(node=5, priority=9, not_before=far)
            store.append_batches([Batch(ownership=None, entries=[called(5)], tickets=[late])])
            assert [ticket.node for ticket in store.owed(10)] == [2, 4, 1, 3]
            assert [ticket.node for ticket in store.owed(3)] == [2, 4, 1]
            assert store.owed(10, older_than=3000) == []
            depth = store.depth()
            assert depth.count == 4
            assert 0 < depth.oldest < 3000

    def test_workers_are_listed_until_they_leave(self) -> None:
        with self._shared() as store, self._shared(store) as other:
            info = WorkerInfo(
                name="é", host="h", process=7, functions=("f", "g"), queues=("default",)
            )
            first = store.join(info, lease=_LEASE)
            second = other.join(_info(), lease=_LEASE)
            load = Load(running=2, waiting=1, slots=50, draining=True)
            assert store.beat(load) == Orders()
            rows = other.workers()
            assert [(row.id, row.info.name, row.alive) for row in rows] == [
                (first, "é", True),
                (second, _WORKER, True),
            ]
            assert (rows[0].info, rows[0].load) == (info, load)
            assert 0 <= rows[0].seen < _LEASE
            other.drain(first)
            assert store.beat(Load()).drain
            assert not other.beat(Load()).drain
            raises(UsageError, lambda: store.drain(second + 99))
            assert store.is_owned()

    def test_a_worker_that_counted_as_dead_lives_again_without_what_others_adopted(self) -> None:
        with self._worker() as store, self._shared(store) as late:
            late.join(_info("late"), lease=_SHORT)
            late.append_batches([_new(called(1)), _new(called(2))])
            self._wait_for_death(store, "late")
            assert [ticket.node for ticket in store.owed(10)] == [1, 2]
            assert store.adopt(2) is not None
            assert late.beat(Load()) == Orders(lost=frozenset({2}))
            assert store.adopt(1) is None
            assert late.adopt(2) is None
            assert late.beat(Load()) == Orders()

    def test_a_drive_that_is_gone_is_reported_as_lost_once(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            store.append_batches([_new(called(1), ended(1)), _new(called(2))])
            assert store.beat(Load()) == Orders()
            other.delete(1)
            assert store.beat(Load()) == Orders(lost=frozenset({1}))
            assert store.beat(Load()) == Orders()

    # Parking and posting

    def test_no_message_is_lost_between_parking_and_posting(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            store.append_batches([_new(called(1))])
            owned, rounds = _own(1), 60
            start = threading.Barrier(2, timeout=_PATIENCE)

            def post() -> list[Any]:
                for _ in range(rounds):
                    start.wait()
                    assert other.post_to(1, "wake up")
                    start.wait()
                return []

            def park() -> list[Any]:
                found: list[bool] = []
                nonlocal owned
                for _ in range(rounds):
                    start.wait()
                    released = store.release(owned, parked=True)
                    start.wait()
                    # Either the owner has seen it, or the drive is owed.
                    assert released == (store.owed(1) == [Ticket(node=1)])
                    for message in store.inbox():
                        store.done(message.id)
                    if released:
                        adopted = store.adopt(1)
                        assert adopted is not None
                        owned = adopted
                    found.append(released)
                return found

            assert len(at_once([post, park])[1]) == rounds

    # Other processes

    def test_listeners_are_woken_when_something_is_written_or_posted(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            woken: set[int] = set()
            wake = threading.Event()

            def note(trees: Any) -> None:
                woken.update(trees)
                wake.set()

            subscription = other.listen(note)
            store.append_batches([_new(called(4), asks("4-1", 2))])
            self._wait_for(lambda: 4 in woken)
            store.append_batches([_new(called(5))])
            self._wait_for(lambda: 5 in woken)
            woken.clear()
            store.post("yes", question="4-1")
            self._wait_for(lambda: 4 in woken)
            subscription.close()
            subscription.close()
            woken.clear()
            store.append_batches([_new(called(6))])
            assert 6 not in woken

    def test_the_last_number_grows_when_something_is_written_or_posted(self) -> None:
        with self._worker() as store, self._shared(store) as other:
            numbers = [other.last()]
            store.append_batches([_new(called(1), asks("1-1", 2))])
            numbers.append(other.last())
            store.post_to(1, "stop")
            numbers.append(other.last())
            store.post("yes", question="1-1")
            numbers.append(other.last())
            assert numbers == sorted(set(numbers))

    def test_broadcasts_reach_those_who_read_them(self) -> None:
        with self._worker() as store, self._shared(store) as other:
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

    def _own(self, store: Store) -> None:
        assert is_shared(store)
        store.join(_info(), lease=_LEASE)

    _drives: WeakKeyDictionary[Store, Drives]

    def _append(self, store: Store, entries: Sequence[Entry]) -> int:
        assert is_shared(store)
        if not hasattr(self, "_drives"):
            self._drives = WeakKeyDictionary()
        drives = self._drives.setdefault(store, {})
        grouped: dict[int, list[Entry]] = {}
        for entry in entries:
            grouped.setdefault(entry.tree, []).append(entry)
        batches = [
            Batch(ownership=ownership, entries=own, written=written)
            for tree, own in grouped.items()
            for ownership, written in [drives.get(tree) or self._drive(store, tree)]
        ]
        outcomes = store.append_batches(batches)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, FencedError):
                raise outcome
            assert batch.ownership is not None
            written = batch.written + len(batch.entries)
            drives[batch.ownership.tree] = batch.ownership, written
        last = outcomes[-1]
        assert isinstance(last, int)
        return last

    def _drive(self, store: SharedStore, tree: int) -> tuple[Ownership, int]:
        owned = store.adopt(tree) or _own(tree)
        return owned, owned.written

    @contextmanager
    def _shared(self, other: Store | None = None) -> Generator[SharedStore]:
        """Open a new store, or another object for the journal of *other*."""
        with closing(self.make_store() if other is None else self.reopen(other)) as store:
            assert is_shared(store)
            yield store

    @contextmanager
    def _worker(self, other: Store | None = None) -> Generator[SharedStore]:
        with self._shared(other) as store:
            store.join(_info(), lease=_LEASE)
            yield store

    def _wait_for_death(self, store: SharedStore, name: str) -> None:
        self._wait_for(
            lambda: not any(row.alive for row in store.workers() if row.info.name == name)
        )

    def _wait_for(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not holds():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.01)


def _info(name: str = _WORKER) -> WorkerInfo:
    return WorkerInfo(name=name, host="here", process=1)


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
