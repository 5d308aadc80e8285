"""Tests of the ``Store`` protocol, which users can run on their own stores.

They use nothing but the protocol; any test runner that calls methods named ``test_...`` works.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final
from unittest import SkipTest
from weakref import WeakKeyDictionary

from treefold.core.cluster import Ownership, WorkerInfo
from treefold.core.errors import (
    DuplicateNameError,
    FencedError,
    InvalidValueError,
    SessionConflictError,
    StoreError,
    StoreOwnedError,
    UnknownNodeError,
    UnknownSessionError,
    UsageError,
)
from treefold.core.exchange import Exchange, Finish
from treefold.core.fact import replace
from treefold.core.question import Escalation, Question, QuestionKind
from treefold.core.sessions import SavedSession, Sessions
from treefold.core.states import NodeState
from treefold.core.store import Batch, Call, Entry, Store, TreeRow
from treefold.core.transcript import ToolResult
from treefold.core.usage import TokenUsage

WORKER: Final = "suite"  # the name of a worker
_LEASE: Final = 60.0  # seconds; no worker dies of itself
_PATIENCE: Final = 30.0  # seconds

Drives = dict[int, tuple[Ownership, int]]  # by tree, with the number of entries written


class StoreFixture:
    """Creates stores, and writes them as their owner does; the suites are based on it."""

    def make_store(self) -> Store:
        """Return a new, empty store that has no owner."""
        raise NotImplementedError

    def reopen(self, store: Store) -> Store:
        """Open the journal of *store*, which may be open or closed, as another process would."""
        raise NotImplementedError

    @contextmanager
    def _opened(self, other: Store | None = None) -> Generator[Store]:
        """Open a new store, or another object for the journal of *other*."""
        with closing(self.make_store() if other is None else self.reopen(other)) as store:
            yield store

    @contextmanager
    def _owned(self, store: Store | None = None) -> Generator[Store]:
        with closing(store or self.make_store()) as owned:
            owned.join(WorkerInfo(name=WORKER), lease=_LEASE)
            yield owned

    @contextmanager
    def _opened_again(self, store: Store) -> Generator[Store]:
        """Open the same journal again, without joining it."""
        again = self.reopen(store)
        try:
            yield again
        finally:
            if again is not store:
                again.close()

    _drives: WeakKeyDictionary[Store, Drives]

    def _batches(self, store: Store, entries: Sequence[Entry]) -> list[Batch]:
        """Return the batches that write *entries*: one, or in a cluster one for each tree."""
        if store.cluster is None:
            return [Batch(entries=entries)]
        if not hasattr(self, "_drives"):
            self._drives = WeakKeyDictionary()
        drives = self._drives.setdefault(store, {})
        grouped: dict[int, list[Entry]] = {}
        for entry in entries:
            grouped.setdefault(entry.tree, []).append(entry)
        for tree in grouped.keys() - drives.keys():
            owned = store.cluster.drives.adopt(tree) or Ownership(tree, tree, 1)
            drives[tree] = owned, owned.written
        return [
            Batch(ownership=ownership, entries=own, written=written)
            for tree, own in grouped.items()
            for ownership, written in [drives[tree]]
        ]

    def _append(self, store: Store, entries: Sequence[Entry]) -> int:
        """Write *entries* as the owner; return the position of the last.

        Raises:
            FencedError: they were refused.
        """
        batches = self._batches(store, entries)
        outcomes = store.append(batches)
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, FencedError):
                raise outcome
            if (owned := batch.ownership) is not None:
                self._drives[store][owned.tree] = owned, batch.written + len(batch.entries)
        last = outcomes[-1]
        assert isinstance(last, int)
        return last

    def _content(self, store: Store) -> list[Any]:
        """Return everything that can be read from a journal."""
        trees = [store.entries(tree) for tree in range(1, 12)]
        found = [store.find(node=node) for node in range(20)]
        lengths = [store.length(node) for node in range(20)]
        asked = [store.questions(), store.inbox(), store.highest()]
        return [store.trees(), trees, found, lengths, *asked]

    def _wait_for(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not holds():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.01)


class StoreSuite(StoreFixture):  # noqa: PLR0904 - a test for each sentence of the contract
    """Tests of a store: name a subclass ``Test...``, and implement how a store is created.

    Stores without the attribute ``sessions`` skip the tests of saved chats, and those with a
    ``cluster`` the tests of the one owner that others have. For these there is ``ClusterSuite``.

    Example:
        >>> from treefold.stores import MemoryStore, Store
        >>> from treefold.testing import StoreSuite
        >>> class TestMemoryStore(StoreSuite):
        ...     def make_store(self) -> Store:
        ...         return MemoryStore()
        ...     def reopen(self, store: Store) -> Store:
        ...         return store
        >>> TestMemoryStore().test_a_new_store_is_empty()
    """

    # Entries

    def test_a_new_store_is_empty(self) -> None:
        with closing(self.make_store()) as store:
            assert (store.trees(), store.questions(), store.inbox()) == ([], [], [])
            assert (store.highest(), store.length(1), store.find(node=1)) == ((0, 0), 0, None)
            assert (store.find_key("a"), store.entries(1), store.is_owned()) == (None, [], False)

    def test_a_journal_keeps_its_id_and_no_other_has_it(self) -> None:
        with self._owned() as store, self._owned() as other:
            assert store.id not in {other.id, ""}
            with self._opened_again(store) as again:
                assert (again.id, again.name) == (store.id, store.name)

    def test_entries_come_back_whole_and_in_order(self) -> None:
        question = a_question("1-1")
        entries = [
            called(1, key="nightly", index=7),
            replace(noted(1, 2, "漢 é \0 \n", hash="ab01"), body='{"é":"漢"}'),
            replace(called(2, tree=1, parent=1), state=NodeState.Running),
            Entry(tree=1, node=1, number=3, kind="Q", body="{}", question=question),
            Entry(tree=1, node=1, number=4, kind="S", body="", settled="1-1"),
            ended(2, tree=1, state=NodeState.Error),
            ended(1, 5, state=NodeState.Canceled),
        ]
        kept = [replace(entry, texts={}, seq=n) for n, entry in enumerate(entries, 1)]
        with self._owned() as store:
            assert self._append(store, entries[:3]) == 3
            assert self._append(store, entries[3:]) == 7
            assert store.entries(1) == kept
            assert [store.entries(1, after=n) for n in (3, 7, 99)] == [kept[3:], [], []]
            with self._opened_again(store) as again:
                assert again.entries(1) == kept
                assert again.text("ab01") == "漢 é \0 \n"
                assert again.texts(1)["ab01"] == "漢 é \0 \n"

    def test_positions_are_counted_over_all_trees(self) -> None:
        with self._owned_alone() as store:
            assert (store.last(), self._append(store, [called(1), called(2)])) == (0, 2)
            assert self._append(store, [noted(1, 2), noted(2, 2), noted(1, 3)]) == 5
            assert [entry.seq for entry in store.entries(1)] == [1, 3, 5]
            assert [entry.seq for entry in store.entries(2, after=2)] == [4]
            assert (store.last(), store.append([]), store.last()) == (5, [], 5)
            batches = [Batch(entries=[ended(2, 3)]), Batch(entries=[noted(1, 4), noted(1, 5)])]
            assert store.append(batches) == [6, 8]
            store.delete(2)
            store.vacuum()
            assert self._append(store, [called(3)]) == store.last() == 9

    def test_positions_rise_within_a_tree(self) -> None:
        with self._owned() as store:
            first = self._append(store, [called(1), noted(1, 2)])
            self._append(store, [called(2)])
            last = self._append(store, [noted(1, 3), noted(1, 4)])
            positions = [entry.seq for entry in store.entries(1)]
            assert positions == sorted(set(positions))
            assert [positions[1], positions[-1]] == [first, last]
            assert [entry.number for entry in store.entries(1, after=first)] == [3, 4]
            assert store.places([1, 3]) == {1: last}
            assert store.places([]) == {}

    def test_the_last_number_grows_when_something_is_written(self) -> None:
        with self._owned() as store, self._opened_again(store) as other:
            numbers = [other.last()]
            for number in (1, 2, 3):
                self._append(store, [called(1)] if number == 1 else [noted(1, number)])
                numbers.append(other.last())
            assert numbers == sorted(set(numbers))

    def test_the_length_of_a_node_is_how_many_entries_it_has(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), noted(1, 2), called(2, tree=1, parent=1), noted(1, 3)])
            assert [store.length(node) for node in (1, 2, 3)] == [3, 1, 0]

    # Ownership

    def test_only_the_owner_may_write(self) -> None:
        with closing(self.make_store()) as store:
            raises(UsageError, lambda: self._append(store, [called(1)]))
            raises(UsageError, lambda: store.done(1))
            assert store.trees() == []

    def test_only_the_owner_of_a_journal_may_delete_and_anyone_may_post(self) -> None:
        with self._owned_alone() as store:
            self._append(store, [called(1), ended(1)])
            store.leave()
            raises(UsageError, lambda: store.delete(1))
            assert store.post("hello")
            assert [tree.id for tree in store.trees()] == [1]

    def test_a_journal_has_one_owner_until_it_is_closed(self) -> None:
        with self._owned_alone() as store, closing(self.reopen(store)) as other:
            error = raises(StoreOwnedError, other.join)
            assert store.name in str(error)
            raises(StoreOwnedError, store.join)
            self._append(store, [called(1)])
            store.close()
            store.close()
            with self._owned(self.reopen(store)) as next_one:
                self._append(next_one, [called(2)])
                assert [tree.id for tree in next_one.trees()] == [1, 2]

    def test_who_leaves_owns_nothing_and_may_join_again(self) -> None:
        with closing(self.make_store()) as store:
            store.leave()
            for tree in (1, 2):
                assert (store.is_owned(), store.join(), store.is_owned()) == (False, False, True)
                self._append(store, [called(tree)])
                store.leave()
                store.leave()
                raises(UsageError, lambda tree=tree: self._append(store, [noted(tree, 2)]))
            assert [(tree.id, tree.driven) for tree in store.trees()] == [(1, False), (2, False)]
            with self._opened_again(store) as other:
                assert other.join() is False
                assert other.is_owned()

    def test_nothing_of_a_batch_is_kept_if_a_number_or_a_key_is_taken(self) -> None:
        with self._owned() as store:
            first = [called(1, key="a"), called(2, tree=1, parent=1, key="b"), noted(1, 2)]
            self._append(store, first)
            before = self._content(store)
            for refused in (
                [noted(1, 2)],
                [noted(1, 3), noted(1, 3)],
                [called(3, tree=1, parent=1, key="b")],
                [replace(called(1, key="d"), number=9)],
            ):
                batch = [
                    noted(1, 8, "a new text", hash="ff"),
                    replace(noted(1, 9), question=a_question("1-1")),
                    *refused,
                ]
                raises(FencedError, lambda batch=batch: self._append(store, batch))
                raises(FencedError, lambda batch=batch: self._append(store, batch[::-1]))
                assert self._content(store) == before
                raises(StoreError, lambda: store.text("ff"))
            raises(FencedError, lambda: self._append(store, [called(3, key="a"), noted(3, 2)]))
            assert self._content(store) == before
            self._append(store, [noted(1, 3)])
            assert [entry.number for entry in store.entries(1)] == [1, 1, 2, 3]

    def test_nothing_of_a_batch_with_several_trees_is_kept_if_one_entry_is_refused(self) -> None:
        with self._owned_alone() as store:
            self._append(
                store,
                [
                    called(1, key="a"),
                    called(2, tree=1, parent=1, key="b"),
                    noted(1, 2),
                ],
            )
            before = self._content(store)
            for refused in (
                [noted(1, 2)],
                [called(3, key="a")],
                [called(3, tree=1, parent=1, key="b")],
                [called(3, key="c"), called(4, key="c")],
                [replace(called(1, key="d"), number=9)],
            ):
                batch = [
                    called(8, index=8, key="new", source=1, inherited=5),
                    noted(8, 2, "a new text", hash="ff"),
                    Entry(
                        tree=8, node=8, number=3, kind="Q", body="{}", question=a_question("8-1")
                    ),
                    replace(ended(1, 7), settled="1-1"),
                    *refused,
                ]
                raises(FencedError, lambda batch=batch: self._append(store, batch))
                raises(FencedError, lambda batch=batch: self._append(store, batch[::-1]))
                assert self._content(store) == before
                raises(StoreError, lambda: store.text("ff"))
            assert self._append(store, [noted(1, 3)]) == 4

    def test_a_batch_that_is_refused_takes_no_other_with_it(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1, key="a")])
            new = [[called(2)], [called(3, key="a")], [called(4), noted(4, 2)]]
            outcomes = store.append([one for part in new for one in self._batches(store, part)])
            refused = [isinstance(outcome, FencedError) for outcome in outcomes]
            assert refused == [False, True, False]
            assert store.name in str(outcomes[1])
            assert [store.entries(4)[-1].seq, store.entries(2)[-1].seq] == outcomes[::-2]
            assert [tree.id for tree in store.trees()] == [1, 2, 4]
            assert store.append([]) == []

    def test_a_key_is_taken_in_its_parent_alone(self) -> None:
        with self._owned() as store:
            self._append(
                store,
                [
                    called(1, key="a"),
                    called(2, tree=1, parent=1, key="a"),
                    called(3, tree=1, parent=2, key="a"),
                ],
            )
            assert (store.find_key("a"), store.length(3)) == (1, 1)

    def test_the_first_entry_of_a_node_has_its_call(self) -> None:
        with self._owned() as store:
            raises(UsageError, lambda: self._append(store, [called(1), ended(2, 1, tree=1)]))
            assert (store.trees(), store.entries(1), store.entries(2)) == ([], [], [])

    # Lookups

    def test_texts_are_found_by_their_hash(self) -> None:
        long = "word " * 50_000
        with self._owned() as store:
            self._append(
                store,
                [
                    called(1),
                    noted(1, 2, long, hash="aa"),
                    noted(1, 3, "b", hash="Not hex!"),
                ],
            )
            self._append(store, [called(2), noted(2, 2, long, hash="aa")])
            assert (store.text("aa"), store.text("Not hex!")) == (long, "b")
            raises(StoreError, lambda: store.text("AA"))
            raises(StoreError, lambda: store.text("bb"))

    def test_some_long_texts_of_a_tree_are_read_at_once(self) -> None:
        with self._owned() as store:
            first = [called(1), noted(1, 2, "one", hash="01"), noted(1, 3, "two", hash="02")]
            self._append(store, [*first, called(2), noted(2, 2, "three", hash="03")])
            assert store.texts(1, hashes=["02", "03", "04"]) == {"02": "two"}
            assert store.texts(1, hashes=[]) == {}
            assert store.texts(1) == {"01": "one", "02": "two"}

    def test_a_node_is_found_in_its_tree(self) -> None:
        with self._owned() as store:
            self._append(
                store, [called(1), called(2, tree=1, parent=1), ended(2, tree=1), ended(1)]
            )
            self._append(store, [called(3, source=1, inherited=3)])
            self._append(
                store,
                [
                    called(5, tree=3, parent=3),
                    called(7),
                    called(8, tree=3, parent=5),
                ],
            )
            found = [store.find(node=node) for node in range(10)]
            assert found == [None, 1, 1, 3, 3, 3, 3, 7, 3, None]
            assert [store.forks(tree) for tree in (1, 3, 7, 9)] == [[3], [], [], []]

    def test_the_entries_around_a_call_leave_out_its_siblings(self) -> None:
        with self._owned() as store:
            entries = [
                called(1),
                called(2, tree=1, parent=1, key="a"),
                called(3, tree=1, parent=1, key="b"),
                noted(1, 2),
                called(4, tree=1, parent=2),
                noted(2, 2, tree=1),
                noted(4, 2, tree=1),
                noted(3, 2, tree=1),
                ended(4, 3, tree=1),
            ]
            self._append(store, entries)
            noting = noted(1, 2).kind
            read = [store.entries_around(2), store.entries_around(2, leaving_out=[noting])]
            assert [[one.seq for one in found] for found in read] == [
                [1, 2, 4, 5, 6, 7, 9],
                [1, 2, 5, 6, 7, 9],
            ]
            every = store.entries(1)
            assert read[0] == [one for one in every if one.node != 3]
            assert store.entries_around(1, leaving_out=[noting]) == every
            assert [one.seq for one in store.entries_around(4)] == [1, 2, 4, 5, 6, 7, 9]
            assert store.entries_around(5) == []

    def test_the_trees_of_several_nodes_are_found_at_once(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), called(2, tree=1, parent=1), ended(1)])
            self._append(store, [called(3, source=1, inherited=2)])
            assert store.find_all([0, 1, 2, 3, 5, 6, 2**80]) == {1: 1, 2: 1, 3: 3, 5: 3}
            assert store.find_all([]) == {}

    def test_the_key_of_a_top_level_call_finds_its_tree(self) -> None:
        with self._owned() as store:
            self._append(
                store,
                [
                    called(1, key="a"),
                    called(2, tree=1, parent=1, key="b"),
                    called(3),
                ],
            )
            self._append(store, [called(4, key="é 漢")])
            found = [store.find_key(key) for key in ("a", "b", "A", "", "é 漢")]
            assert found == [1, None, None, None, 4]

    def test_the_number_of_a_tree_finds_it(self) -> None:
        with self._owned() as store:
            assert (store.find_number(1), store.find_number()) == (None, None)
            self._append(store, [called(1, index=1), called(2, tree=1, parent=1, key="b", index=9)])
            self._append(store, [called(5, index=2), called(8, index=3), ended(8)])
            found = [store.find_number(number) for number in (1, 2, 3, 4, 9, 10**30)]
            assert found == [1, 5, 8, None, None, None]
            assert store.find_number() == 8
            store.delete(8)
            assert (store.find_number(3), store.find_number()) == (None, 5)

    def test_the_highest_numbers_include_ids_that_a_fork_shares_and_deleted_ones(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1, index=1), called(5, tree=1, parent=1, index=70)])
            assert store.highest() == (5, 1)
            self._append(
                store, [ended(5, tree=1), ended(1), called(6, index=2, source=1, inherited=4)]
            )
            assert store.highest() == (10, 2)
            self._append(store, [ended(6)])
            store.delete(6)
            store.delete(1)
            assert (store.highest(), store.trees()) == ((10, 2), [])
            self._append(store, [called(11, index=3)])
            with self._opened_again(store) as again:
                assert again.highest() == (11, 3)

    def test_trees_are_listed_oldest_first_with_the_state_of_their_top_level_call(self) -> None:
        with self._owned() as store:
            owner = None if store.cluster is None else WORKER
            self._append(store, [called(1, key="b", index=1)])
            self._append(store, [called(2, key="a", index=2), changed(2, 2, NodeState.Running)])
            self._append(store, [ended(2, 3, state=NodeState.Error)])
            self._append(
                store, [replace(called(3, key="c", index=3, source=2, inherited=1), state=None)]
            )
            expected = [
                TreeRow(
                    id=id,
                    number=id,
                    key=key,
                    function="f",
                    state=state,
                    open=not state.final,
                    parked=False,
                    source=source,
                    driven=not state.final,
                    owner=None if state.final else owner,
                )
                for id, key, state, source in (
                    (1, "b", NodeState.Waiting, 0),
                    (2, "a", NodeState.Error, 0),
                    (3, "c", NodeState.Waiting, 2),
                )
            ]
            assert store.trees() == expected
            with self._opened_again(store) as again:
                assert again.trees() == expected

    def test_trees_are_listed_in_pages(self) -> None:
        with self._owned() as store:
            for tree in range(1, 7):
                self._append(store, [called(tree)])
            self._append(store, [ended(2), ended(5), called(9, tree=6, parent=6), ended(6)])

            def ids(**page: Any) -> list[int]:
                return [tree.id for tree in store.trees(**page)]

            assert ids() == ids(after=0, limit=None, open=None) == [1, 2, 3, 4, 5, 6]
            assert (ids(limit=2), ids(after=2, limit=2), ids(after=6)) == ([1, 2], [3, 4], [])
            assert (ids(open=True), ids(open=False)) == ([1, 3, 4, 6], [2, 5])
            assert ids(after=1, limit=2, open=True) == [3, 4]
            assert ids(after=2, limit=2, open=False) == [5]
            assert (ids(limit=0), ids(limit=99)) == ([], [1, 2, 3, 4, 5, 6])

    def test_a_tree_is_driven_while_it_is_open_and_has_an_owner(self) -> None:
        with self._owned() as store, self._opened_again(store) as other:
            self._append(store, [called(1), called(2), ended(2)])
            assert [tree.driven for tree in other.trees()] == [True, False]
            owner = None if store.cluster is None else WORKER
            assert [tree.owner for tree in other.trees()] == [owner, None]
            store.close()
            if other is not store:
                assert [(tree.driven, tree.owner) for tree in other.trees()] == [(False, None)] * 2

    def test_a_tree_is_open_until_all_of_its_nodes_have_ended(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), called(2, tree=1, parent=1), ended(1)])
            assert [(tree.state, tree.open) for tree in store.trees()] == [
                (NodeState.Success, True)
            ]
            self._append(store, [ended(2, tree=1, state=NodeState.Canceled)])
            assert [tree.open for tree in store.trees()] == [False]

    def test_a_tree_is_parked_if_nothing_can_continue_without_an_answer(self) -> None:
        with self._owned() as store:

            def parked(*entries: Entry) -> list[bool]:
                self._append(store, entries)
                return [tree.parked for tree in store.trees()]

            assert parked(called(1), called(2, tree=1, parent=1)) == [False]
            assert parked(asks("1-1", 2)) == [False]  # the other can continue
            assert parked(asks("2-1", 2, tree=1)) == [True]
            assert parked(called(3, tree=1, parent=1), called(9)) == [False, False]
            assert parked(asks("3-1", 2, tree=1), asks("3-2", 3, tree=1)) == [True, False]
            assert parked(settles("3-1", 4, tree=1)) == [True, False]
            assert parked(settles("3-2", 5, tree=1)) == [False, False]
            assert parked(ended(3, 6, tree=1)) == [True, False]
            assert parked(ended(2, 3, tree=1)) == [True, False]  # by the question of node 1
            assert parked(ended(1, 3)) == [False, False]
            below = [called(21, tree=20, parent=20), asks("21-1", 2, tree=20)]
            assert parked(called(20), *below) == [False, False, True]
            code = [
                called(30, idles=False),
                called(31, tree=30, parent=30),
                asks("31-1", 2, tree=30),
            ]
            assert parked(*code)[-1] is False  # it may be doing something else
            assert parked(asks("30-1", 2))[-1] is True

    def test_a_new_owner_looks_at_what_can_continue_and_at_what_it_lacks_the_functions_of(
        self,
    ) -> None:
        with self._owned() as store:

            def found(*functions: str) -> list[int]:
                return [tree.id for tree in store.to_resume(functions)]

            self._append(store, [called(1), called(2, tree=1, parent=1), called(9), called(12)])
            self._append(store, [called(20), called(21, tree=20, parent=20), ended(12)])
            assert found("f") == [1, 9, 20]
            self._append(store, [asks("2-1", 2, tree=1), sleeps("9-1", 2, 7.0)])
            assert found("f") == [20]
            assert found("g") == found() == [1, 9, 20]
            assert store.to_resume([]) == store.trees(open=True)
            assert [tree.parked for tree in store.to_resume(["g"])] == [True, True, False]
            self._append(store, [settles("2-1", 3, tree=1), ended(20)])
            assert found("f", "g") == [1, 20]  # a call in 20 has not ended
            self._append(store, [ended(21, tree=20)])
            assert found("f") == [1]

    def test_the_pending_questions_of_a_tree_are_read(self) -> None:
        with self._owned() as store, self._opened_again(store) as other:
            self._append(store, [called(1), called(2, tree=1, parent=1), called(9)])
            self._append(store, [asks("2-1", 2, tree=1), asks("9-1", 2), asks("1-1", 2)])
            self._append(store, [sleeps("1-2", 3, 7.0)])
            assert store.pending(1) == other.pending(1) == [a_question("2-1"), a_question("1-1")]
            assert other.post("yes", question="2-1")
            assert store.pending(1) == other.pending(1) == [a_question("2-1"), a_question("1-1")]
            self._append(store, [settles("2-1", 3, tree=1)])
            assert store.pending(1) == [a_question("1-1")]
            self._append(store, [ended(1, 4)])
            assert (store.pending(1), store.pending(9)) == ([], [a_question("9-1")])

    def test_a_call_that_sleeps_asks_nobody_and_its_tree_is_parked_until_it_wakes(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), called(2, tree=1, parent=1)])
            self._append(store, [sleeps("1-1", 2, 9.0), sleeps("2-1", 2, 7.0, tree=1)])
            assert store.questions() == store.questions(answered=True) == []
            assert [(tree.parked, tree.asleep_until) for tree in store.trees()] == [(True, 7.0)]
            self._append(store, [settles("2-1", 3, tree=1)])
            assert [(tree.parked, tree.asleep_until) for tree in store.trees()] == [(False, 9.0)]
            self._append(store, [ended(1, 3)])
            assert [tree.asleep_until for tree in store.trees()] == [None]

    def test_timers_are_what_is_due_the_earliest_first(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), called(9)])
            late = replace(a_question("1-1"), expires=20.0, escalations=(Escalation(10.0, "b"),))
            self._append(store, [replace(noted(1, 2), question=late), sleeps("9-1", 2, 15.0)])
            self._append(store, [asks("9-2", 3)])  # which is never due
            assert store.timers() == [(10.0, 1), (15.0, 9)]
            assert store.timers(limit=1) == store.timers(until=14.0) == [(10.0, 1)]
            assert store.timers(after=10.0) == [(15.0, 9)]
            # It is escalated, and so has another time.
            later = replace(late, to="b", escalations=(), notified=True)
            self._append(store, [replace(noted(1, 3), question=later)])
            assert store.timers() == [(15.0, 9), (20.0, 1)]
            found = {one.id: one for one in store.questions()}
            assert (found["1-1"], found["1-1"].notified) == (later, True)
            self._append(store, [settles("1-1", 4), ended(9, 4)])
            assert store.timers() == []

    def test_past_runs_are_those_of_an_agent_that_succeeded_last(self) -> None:
        with self._owned() as store:
            for run in (10, 20, 30, 40):
                self._append(store, [called(run), begun(run, run)])
                for call in (run + 1, run + 2):
                    self._append(store, [called(call, tree=run, parent=run)])
                    self._append(store, [begun(call, call, tree=run)])
            assert store.past_runs("f", 5) == []  # none has ended
            self._append(store, [replace(ended(40, 3), at=50.0), replace(ended(20, 3), at=60.0)])
            failed = replace(ended(10, 3, state=NodeState.Error), at=70.0)
            self._append(store, [failed, replace(ended(30, 3), at=80.0)])
            self._append(store, [called(90), begun(90, 90.0), replace(ended(90, 3), at=91.0)])
            code = [called(95, idles=False), begun(95, 95.0), replace(ended(95, 3), at=96.0)]
            self._append(store, code)
            with self._opened_again(store) as again:
                runs = [[41, 42], [21, 22], [31, 32], []]
                assert again.past_runs("f", 5) == runs
                assert again.past_runs("f", 2) == runs[2:]
                assert again.past_runs("g", 5) == []

    # Questions and messages

    def test_questions_are_pending_until_they_are_settled_or_their_node_ends(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), called(2, tree=1, parent=1), asks("2-1", 2, tree=1)])
            self._append(store, [asks("1-1", 2), asks("1-2", 3), asks("1-3", 4)])
            waiting = [a_question(id) for id in ("2-1", "1-1", "1-2", "1-3")]
            assert store.questions() == waiting
            with self._opened_again(store) as again:
                assert again.questions() == waiting
            self._append(store, [settles("1-2", 5)])
            assert store.questions() == [a_question(id) for id in ("2-1", "1-1", "1-3")]
            self._append(store, [changed(1, 6, NodeState.Running)])
            self._append(store, [ended(1, 7)])
            assert store.questions() == [a_question("2-1")]

    def test_messages_stay_in_order_until_they_are_done(self) -> None:
        with self._owned() as store, self._opened_again(store) as other:
            self._append(store, [called(1), called(2, tree=1, parent=1), called(3)])
            posted = [
                other.post("first", node=2),
                store.post("é \0", node=3),
                other.post("first", node=1),
            ]
            assert posted == [True] * 3
            messages = store.inbox()
            assert [message.body for message in messages] == ["first", "é \0", "first"]
            assert other.inbox() == store.inbox(owned=True) == messages
            assert store.inbox(drives=[1, 3], owned=True) == messages
            store.done(messages[0].id)
            store.done(messages[0].id)
            assert store.inbox() == messages[1:]
            store.post("last", node=1)
            assert (store.inbox()[-1].body, len(store.inbox())) == ("last", 3)
            assert store.inbox()[-1].id > messages[-1].id

    def test_a_question_is_answered_once(self) -> None:
        with self._owned() as store, self._opened_again(store) as other:
            self._append(store, [called(1), asks("1-1", 2), asks("1-2", 3), asks("1-3", 4)])
            self._append(store, [settles("1-2", 5)])
            answered = [other.post(id, question=id) for id in ("1-1", "1-1", "1-2", "1-9")]
            assert answered == [True, False, False, False]
            assert store.post("again", question="1-1") is False
            assert store.questions() == other.questions() == [a_question("1-3")]
            pending = [a_question(id) for id in ("1-1", "1-3")]
            assert store.questions(answered=True) == other.questions(answered=True) == pending
            assert [message.body for message in store.inbox()] == ["1-1"]
            assert store.trees()[0].parked  # the answer was not handled yet

    def test_the_questions_of_one_call_are_read_and_the_first_ones_of_all(self) -> None:
        with self._owned() as store, self._opened_again(store) as other:
            first, second, third = [a_question(id) for id in ("2-1", "1-1", "2-2")]
            self._append(store, [called(1), called(2, tree=1, parent=1)])
            self._append(store, [asks("2-1", 2, tree=1), asks("1-1", 2), asks("2-2", 3, tree=1)])
            for reader in (store, other):
                assert reader.questions(node=2) == [first, third]
                assert reader.questions(node=2, limit=1) == [first]
                assert reader.questions(node=3) == []
                assert reader.questions(limit=2) == [first, second]
            assert store.post("yes", question="2-1")
            assert other.questions(node=2) == [third]
            assert other.questions(node=2, answered=True) == [first, third]
            assert other.questions(limit=1) == [second]

    def test_a_question_whose_answer_was_discarded_is_pending_again(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), asks("1-1", 2)])
            assert store.post("nonsense", question="1-1")
            store.done(store.inbox()[0].id)
            assert store.questions() == [a_question("1-1")]
            assert store.post("yes", question="1-1")
            self._append(store, [settles("1-1", 3)])
            store.done(store.inbox()[0].id)
            assert (store.questions(), store.inbox()) == ([], [])

    def test_one_of_many_concurrent_answers_is_accepted(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), *[asks(f"1-{n}", n + 1) for n in range(1, 6)]])

            def answer(who: int) -> list[bool]:
                return [store.post(f"{who}", question=f"1-{n}") for n in range(1, 6)]

            accepted = at_once([lambda who=who: answer(who) for who in range(4)])
            assert [sum(one) for one in zip(*accepted, strict=True)] == [1] * 5
            assert len(store.inbox()) == 5

    # Deleting

    def test_a_tree_that_is_open_unknown_or_forked_is_not_deleted(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1), called(2, tree=1, parent=1), ended(1)])
            raises(UsageError, lambda: store.delete(1))
            self._append(store, [ended(2, tree=1), called(3, source=1, inherited=1), ended(3)])
            before = self._content(store)
            raises(UsageError, lambda: store.delete(1))
            for unknown in (2, 4, 9):
                raises(UnknownNodeError, lambda unknown=unknown: store.delete(unknown))
            assert self._content(store) == before
            store.delete(3)
            store.delete(1)
            assert store.trees() == []

    def test_deleting_a_tree_removes_all_of_it_and_nothing_of_others(self) -> None:
        with self._owned() as store:
            self._append(store, [called(1, key="a"), noted(1, 2, "one", hash="01")])
            self._append(
                store,
                [
                    noted(1, 3, "both", hash="02"),
                    noted(1, 4, "both", hash="02"),
                    ended(1, 5),
                ],
            )
            self._append(
                store, [called(2, key="b"), noted(2, 2, "both", hash="02"), asks("2-1", 3)]
            )
            kept = store.entries(2)
            store.delete(1)
            assert (store.entries(1), store.length(1), store.find(node=1)) == ([], 0, None)
            assert store.find_key("a") is None
            raises(StoreError, lambda: store.text("01"))
            raises(UnknownNodeError, lambda: store.delete(1))
            assert (store.entries(2), store.text("02")) == (kept, "both")
            assert store.questions() == [a_question("2-1")]
            self._append(store, [called(3, key="a"), noted(3, 2, "one", hash="01"), ended(2, 4)])
            store.delete(2)
            raises(StoreError, lambda: store.text("02"))
            assert (store.find_key("a"), store.text("01")) == (3, "one")

    def test_vacuum_changes_nothing_that_can_be_read(self) -> None:
        with self._owned() as store:
            for tree in range(1, 6):
                self._append(
                    store, [called(tree), noted(tree, 2, f"{tree}" * 9000, hash=f"0{tree}")]
                )
                self._append(store, [ended(tree, 3)])
            for tree in range(1, 5):
                store.delete(tree)
            before = self._content(store)
            store.vacuum()
            assert (self._content(store), store.text("05")) == (before, "5" * 9000)
            self._append(store, [called(9)])
            assert [tree.id for tree in store.trees()] == [5, 9]

    # Threads

    def test_concurrent_readers_see_whole_batches(self) -> None:
        with self._owned() as store:
            self._append(store, [called(tree) for tree in range(1, 4)])
            writing = threading.Semaphore(0)
            odd: list[int] = []

            def write(tree: int) -> list[int]:
                try:
                    return [
                        self._append(store, [noted(tree, n), noted(tree, n + 1)])
                        for n in range(2, 60, 2)
                    ]
                finally:
                    writing.release()

            def read() -> list[int]:
                ended = 0
                while ended < 3:
                    ended += writing.acquire(blocking=False)
                    odd.extend(
                        len(found)
                        for tree in range(1, 4)
                        if len(found := store.entries(tree)) % 2 == 0
                    )
                return []

            jobs = [*[lambda tree=tree: write(tree) for tree in range(1, 4)], read]
            places = at_once(jobs)
            assert odd == []
            self._check_places(store, places[:-1])
            for tree in range(1, 4):
                assert [entry.number for entry in store.entries(tree)] == list(range(1, 60))

    # Saved chats

    def test_a_session_is_saved_without_owning_the_store(self) -> None:
        with closing(self.make_store()) as store:
            sessions = _sessions_of(store)
            assert (sessions.find("trip"), sessions.list()) == (None, [])
            assert sessions.open("trip") == SavedSession("trip", None, (), ())
            first = sessions.append("trip", exchange("a"), after=None, model="m", preview="Hi")
            head = sessions.append("trip", exchange("é \0"), after=first)
            sessions.keep("trip", [ToolResult("1", "42")], after=head)
            saved = SavedSession(
                "trip", head, (exchange("a"), exchange("é \0")), (ToolResult("1", "42"),)
            )
            with self._opened_again(store) as again:
                others = _sessions_of(again)
                assert others.find("trip") == others.open("trip") == saved
                [info] = others.list()
            assert (info.name, info.model, info.exchanges, info.preview) == ("trip", "m", 2, "Hi")
            assert info.created_at <= info.updated_at

    def test_an_outdated_head_of_a_session_writes_nothing(self) -> None:
        with closing(self.make_store()) as store:
            sessions = _sessions_of(store)
            sessions.open("trip")
            head = sessions.append("trip", exchange("a"), after=None)
            for write in (
                lambda: sessions.append("trip", exchange("b"), after=None),
                lambda: sessions.keep("trip", [ToolResult("1", "42")], after=head + 1),
                lambda: sessions.replace("trip", [], after=None),
            ):
                raises(SessionConflictError, write)
            assert sessions.open("trip") == SavedSession("trip", head, (exchange("a"),), ())

    def test_a_forked_session_keeps_what_the_other_loses(self) -> None:
        with closing(self.make_store()) as store:
            sessions = _sessions_of(store)
            sessions.open("trip")
            head = sessions.append("trip", exchange("a"), after=None)
            assert sessions.fork("trip", "fork").head == head
            new = sessions.replace("trip", [exchange("a"), exchange("b")], after=head)
            sessions.append("fork", exchange("c"), after=head)
            assert sessions.open("trip").exchanges == (exchange("a"), exchange("b"))
            assert sessions.replace("trip", [], after=new) is None
            sessions.delete("trip")
            assert sessions.open("fork").exchanges == (exchange("a"), exchange("c"))
            assert [info.name for info in sessions.list()] == ["fork"]

    def test_names_of_sessions_are_checked(self) -> None:
        with closing(self.make_store()) as store:
            sessions = _sessions_of(store)
            sessions.open("trip")
            sessions.check_free("new")
            raises(DuplicateNameError, lambda: sessions.check_free("trip"))
            raises(DuplicateNameError, lambda: sessions.fork("trip", "trip"))
            for use in (
                lambda: sessions.fork("x", "new"),
                lambda: sessions.delete("x"),
                lambda: sessions.append("x", exchange("a"), after=None),
            ):
                raises(UnknownSessionError, use)
            raises(InvalidValueError, lambda: sessions.open(" "))

    # Helpers

    def _check_places(self, store: Store, places: Sequence[Sequence[int]]) -> None:
        """Check the positions that 3 threads have got for 29 batches of 2 entries each."""
        if store.cluster is None:
            assert sorted(place for found in places for place in found) == list(range(5, 179, 2))
        else:
            assert list(map(list, places)) == [list(range(3, 60, 2))] * 3

    @contextmanager
    def _owned_alone(self) -> Generator[Store]:
        """Open a store with one owner, which this is."""
        with self._owned() as store:
            if store.cluster is not None:
                raise SkipTest(f"{type(store).__name__} has an owner for each tree")
            yield store


# Entries with just the fields that a store uses


def called(
    node: int,
    *,
    tree: int = 0,
    parent: int = 0,
    key: str = "",
    index: int = 0,
    source: int = 0,
    inherited: int = 0,
    idles: bool = True,
) -> Entry:
    """Return the first entry of a node, a top-level one unless it has a *parent*."""
    call = Call(
        parent=parent,
        key=key or f"call {node}",
        index=index or node,
        function="f",
        idles=idles,
        source=source,
        inherited=inherited,
    )
    return replace(changed(node, 1, NodeState.Waiting, tree=tree), kind="CallRequested", call=call)


def changed(node: int, number: int, state: NodeState, *, tree: int = 0) -> Entry:
    """Return an entry that changes the state of a node."""
    return Entry(
        tree=tree or node, node=node, number=number, kind="Changed", body="{}", state=state
    )


def begun(node: int, at: float, *, tree: int = 0) -> Entry:
    """Return the entry with which a node begins to run."""
    return replace(changed(node, 2, NodeState.Running, tree=tree), at=at)


def ended(
    node: int, number: int = 2, *, tree: int = 0, state: NodeState = NodeState.Success
) -> Entry:
    """Return the last entry of a node."""
    return changed(node, number, state, tree=tree)


def noted(node: int, number: int, text: str = "", *, tree: int = 0, hash: str = "") -> Entry:
    """Return an entry that references a long text, if there is a *hash* for it."""
    return Entry(
        tree=tree or node,
        node=node,
        number=number,
        kind="Noted",
        body=f'{{"v":"{hash}"}}',
        texts={hash: text} if hash else {},
    )


def a_question(id: str) -> Question:
    """Return a question of the node whose id *id* begins with."""
    return Question(
        id=id,
        node_id=int(id.partition("-")[0]),
        kind=QuestionKind.Approval,
        text=f"é {id}?",
        choices=("allow", "deny"),
    )


def asks(id: str, number: int, *, tree: int = 0) -> Entry:
    """Return the entry that asks a question."""
    question = a_question(id)
    return replace(noted(question.node_id, number, tree=tree), question=question)


def sleeps(id: str, number: int, until: float, *, tree: int = 0) -> Entry:
    """Return the entry that lets a call sleep."""
    question = replace(a_question(id), kind=QuestionKind.Sleep, expires=until)
    return replace(noted(question.node_id, number, tree=tree), question=question)


def settles(id: str, number: int, *, tree: int = 0) -> Entry:
    """Return the entry that settles a question."""
    return replace(noted(a_question(id).node_id, number, tree=tree), settled=id)


def exchange(text: str) -> Exchange:
    """Return an exchange of a chat."""
    return Exchange(
        dialect="plain",
        sent=(text,),
        received=(f"{text}!",),
        finish=Finish.ANSWERED,
        usage=TokenUsage(input=8, output=1),
    )


def _sessions_of(store: Store) -> Sessions:
    if (found := getattr(store, "sessions", None)) is None:
        raise SkipTest(f"{type(store).__name__} has no sessions")
    return found


def write(store: Store, entries: Sequence[Entry]) -> int:
    """Write *entries* to a store with one owner; return the position of the last.

    Raises:
        FencedError: they were refused.
    """
    [outcome] = store.append([Batch(entries=entries)])
    if isinstance(outcome, FencedError):
        raise outcome
    return outcome


@contextmanager
def closing(store: Store) -> Generator[Store]:
    """Close *store* at the end of the block."""
    try:
        yield store
    finally:
        store.close()


def raises(kind: type[Exception], act: Callable[[], object]) -> Exception:
    """Return the error of *kind* that *act* raises."""
    try:
        found = act()
    except kind as error:
        return error
    raise AssertionError(f"this should raise {kind.__name__}, and returned {found!r}")


def at_once(jobs: Sequence[Callable[[], list[Any]]]) -> list[list[Any]]:
    """Run each job in a thread of its own, at the same time; return their results."""
    together = threading.Barrier(len(jobs), timeout=30)

    def run(job: Callable[[], list[Any]]) -> list[Any]:
        together.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [one.result(timeout=60) for one in [pool.submit(run, job) for job in jobs]]
