"""Conversations that are saved, gone on with, forked and deleted."""

import json
import pickle
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from saved_exchanges import entries, exchange, reached, said, save
from treefold import SessionConflictError, SessionInfo, SessionStore, ToolResult
from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    StoreError,
    TreefoldError,
    UnknownSessionError,
)
from treefold.core.fact import replace as changed
from treefold.core.sessions import SavedSession


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def test_an_unknown_session_is_created_empty():
    with SessionStore(":memory:") as store:
        assert store.open("trip") == SavedSession("trip", None, (), ())


def test_what_was_appended_is_there_when_the_file_is_opened_again(path: Path):
    with SessionStore(path) as store:
        head = save(store, "trip", "a", "b", "c")
    with SessionStore(path) as store:
        assert store.open("trip") == SavedSession(
            "trip", head, (exchange("a"), exchange("b"), exchange("c")), ()
        )


def test_every_character_comes_back_half_ones_included():
    strange = changed(exchange("é 漢 😀"), received=('{"x":"\\u0000"}', "\0", "\ud83d", "\\ud83d"))
    with SessionStore(":memory:") as store:
        store.open("trip", preview="\ud83d half", model="\udcff")
        store.append("trip", strange, after=None)
        assert store.open("trip").exchanges == (strange,)
        assert store.list()[0].preview == "\\ud83d half"


def test_results_wait_with_the_session_until_the_next_exchange(path: Path):
    waiting = (ToolResult("1", "3"), ToolResult("2", "no such \ud83d", is_error=True))
    with SessionStore(path) as store:
        head = save(store, "trip", "a")
        store.keep("trip", waiting[:1], after=head)
        store.keep("trip", waiting, after=head)
    with SessionStore(path) as store:
        assert store.open("trip").unsent == waiting
        store.append("trip", exchange("b"), after=head)
        assert store.open("trip").unsent == ()


def test_a_fork_goes_on_from_the_same_point_and_both_are_independent(path: Path):
    with SessionStore(path) as store:
        head = save(store, "trip", "a", "b")
        store.keep("trip", [ToolResult("1", "3")], after=head)
        assert store.fork("trip", "by train") == replace(store.open("trip"), name="by train")
        save(store, "trip", "c")
        save(store, "by train", "d", "e")
        assert said(store.open("trip").exchanges) == ["a", "b", "c"]
        assert said(store.open("by train").exchanges) == ["a", "b", "d", "e"]
    assert len(entries(path)) == 5


def test_a_fork_needs_a_name_that_is_free_and_a_session_that_is_there():
    with SessionStore(":memory:") as store:
        save(store, "trip", "a")
        save(store, "train", "b")
        with pytest.raises(ValueError, match="there already is a session 'train'; choose"):
            store.fork("trip", "train")
        with pytest.raises(ValueError, match="there already is a session 'trip'"):
            store.fork("trip", "trip")
        with pytest.raises(KeyError, match="there is no session 'tripp'; did you mean 'trip'"):
            store.fork("tripp", "new")
        assert [info.name for info in store.list()] == ["train", "trip"]


def test_deleting_removes_what_no_fork_has(path: Path):
    with SessionStore(path) as store:
        save(store, "trip", "a", "b")
        store.fork("trip", "early")
        save(store, "trip", "c", "d")
        store.fork("trip", "late")
        store.delete("trip")
        assert len(entries(path)) == 4
        store.delete("late")
        assert len(entries(path)) == 2
        assert said(store.open("early").exchanges) == ["a", "b"]
        store.delete("early")
        assert store.list() == []
    assert entries(path) == set()


def test_the_head_of_a_fork_may_be_in_the_middle_of_another_session(path: Path):
    with SessionStore(path) as store:
        save(store, "long", "a", "b")
        store.fork("long", "short")
        save(store, "long", "c")
        store.delete("short")
        assert said(store.open("long").exchanges) == ["a", "b", "c"]
    assert entries(path) == reached(path)


def test_deleting_an_unknown_session_suggests_names():
    with SessionStore(":memory:") as store:
        with pytest.raises(UnknownSessionError, match="there is no session 'x'; none is saved"):
            store.delete("x")
        for name in ("trip to Rome", "trip to Nice", "b", "c", "d", "e"):
            store.open(name)
        with pytest.raises(KeyError) as caught:
            store.delete("trip to Rom")
        assert str(caught.value) == (
            "there is no session 'trip to Rom'; did you mean 'trip to Rome', 'trip to Nice'?"
        )
        with pytest.raises(KeyError, match=r"'zzz'; there are 'e', 'd', 'c', 'b', '.*', ..."):
            store.delete("zzz")


def test_a_writer_with_an_outdated_head_gets_an_error_and_changes_nothing(path: Path):
    with SessionStore(path) as one, SessionStore(path) as other:
        head = save(one, "trip", "a")
        other.append("trip", exchange("b"), after=other.open("trip").head)
        before = one.open("trip")
        for change in (
            lambda: one.append("trip", exchange("c"), after=head),
            lambda: one.append("trip", exchange("c"), after=None),
            lambda: one.append("trip", exchange("c"), after=10**30),
            lambda: one.keep("trip", [ToolResult("1", "3")], after=head),
            lambda: one.replace("trip", [], after=head),
        ):
            with pytest.raises(SessionConflictError, match="'trip'; open it again, or fork it"):
                change()
        assert one.open("trip") == before
    assert entries(path) == reached(path)


def test_an_outdated_head_never_means_a_newer_entry():
    with SessionStore(":memory:") as store:
        head = save(store, "trip", "a", "b")
        store.delete("trip")
        assert save(store, "trip", "c", "d") != head
        with pytest.raises(SessionConflictError):
            store.append("trip", exchange("e"), after=head)


def test_appending_to_a_deleted_session_is_an_error():
    with SessionStore(":memory:") as store:
        head = save(store, "trip", "a")
        store.delete("trip")
        with pytest.raises(UnknownSessionError, match="there is no session 'trip'"):
            store.append("trip", exchange("b"), after=head)


def test_an_edited_history_takes_the_place_of_the_old_one(path: Path):
    with SessionStore(path) as store:
        head = save(store, "trip", "a", "b", "c")
        store.fork("trip", "as it was")
        head = store.replace("trip", [exchange("a"), exchange("x")], after=head)
        assert store.open("trip") == SavedSession("trip", head, (exchange("a"), exchange("x")), ())
        assert len(entries(path)) == 4  # the first one is shared
        assert said(store.open("as it was").exchanges) == ["a", "b", "c"]
        store.delete("as it was")
        assert len(entries(path)) == 2
        assert store.replace("trip", [], after=head) is None
    assert entries(path) == set()


def test_a_history_that_was_only_cut_short_is_not_written_again(path: Path):
    with SessionStore(path) as store:
        save(store, "trip", "a")
        head = save(store, "trip", "b")
        last = save(store, "trip", "c")
        assert store.replace("trip", [exchange("a"), exchange("b")], after=last) == head
        assert store.replace("trip", [exchange("a"), exchange("b")], after=head) == head
        assert said(store.open("trip").exchanges) == ["a", "b"]


def test_the_list_has_the_newest_first_and_tells_about_each():
    before = datetime.now(UTC)
    with SessionStore(":memory:") as store:
        store.open("old", model="one")
        store.append("old", exchange("a"), after=None, preview="Where to?")
        save(store, "new", "b", "c")
        head = store.open("old", model="two").head
        store.append("old", exchange("d"), after=head, preview="not the first")
        old, new = store.list()
    assert old == SessionInfo("old", "two", 2, "Where to?", old.created_at, old.updated_at)
    assert new == SessionInfo("new", "", 2, "", new.created_at, new.updated_at)
    assert before <= old.created_at <= new.created_at <= new.updated_at <= old.updated_at
    assert old.created_at.tzinfo is UTC


def test_looking_at_a_session_does_not_make_it_newer():
    with SessionStore(":memory:") as store:
        store.open("old")
        store.open("new")
        store.open("old")
        assert [info.name for info in store.list()] == ["new", "old"]


def test_a_long_preview_is_cut_and_an_emptied_session_gets_a_new_one():
    with SessionStore(":memory:") as store:
        head = store.open("trip", preview="x" * 1000).head
        assert store.list()[0].preview == "x" * 200
        store.replace("trip", [], after=head)
        store.append("trip", exchange("a"), after=None, preview="Again")
        assert store.list()[0].preview == "Again"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J", "\ud83d", "x" * 201, None, 3])
def test_a_name_that_could_not_be_shown_is_refused(name: str):
    with SessionStore(":memory:") as store:
        for use in (store.open, store.delete, lambda name: store.fork("trip", name)):
            store.open("trip")
            with pytest.raises(InvalidValueError, match="session must be a name of"):
                use(name)


@pytest.mark.parametrize("name", ["x" * 200, "'; DROP TABLE sessions; --", "漢字 😀", "%", "../a"])
def test_any_other_name_will_do(name: str):
    with SessionStore(":memory:") as store:
        save(store, name, "a")
        store.fork(name, "copy")
        store.delete(name)
        assert [info.name for info in store.list()] == ["copy"]


def test_a_closed_store_says_so_and_may_be_closed_again(path: Path):
    store = SessionStore(path)
    assert repr(store) == f"<SessionStore {path}>"
    store.close()
    store.close()
    assert repr(store) == f"<SessionStore {path}, closed>"
    for use in (store.list, lambda: store.open("trip")):
        with pytest.raises(ClosedError, match="was closed; open it again"):
            use()


def test_an_unreadable_session_is_reported_as_damaged(path: Path):
    def tamper(statement: str) -> None:
        with closing(sqlite3.connect(path)) as rows, rows:
            rows.execute(statement)

    with SessionStore(path) as store:
        save(store, "trip", "a", "b", "c")
        saved = json.dumps(store.open("trip").exchanges[1].to_dict())
        for fault in ("{", "[]", '{"dialect":1}', "null"):
            tamper(f"UPDATE entries SET exchange = '{fault}' WHERE id = 2")
            with pytest.raises(StoreError, match="'trip' cannot be read: .* restore a copy"):
                store.open("trip")
        tamper(f"UPDATE entries SET exchange = '{saved}' WHERE id = 2")
        for fault in ("{", "3", '[{"content":1}]'):
            tamper(f"UPDATE sessions SET unsent = '{fault}'")
            with pytest.raises(StoreError, match="'trip' cannot be read"):
                store.open("trip")
        tamper("UPDATE sessions SET unsent = '[]'")
        tamper("DELETE FROM entries WHERE id = 2")
        with pytest.raises(StoreError, match="must have 3 exchanges, but has 1"):
            store.open("trip")


def test_threads_that_go_on_with_sessions_at_once_lose_nothing(path: Path):
    failures: list[BaseException] = []

    def converse(store: SessionStore, name: str) -> None:
        try:
            save(store, name, *map(str, range(30)))
            store.fork(name, f"{name} again")
            store.delete(name)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    with SessionStore(path) as store:
        threads = [
            threading.Thread(target=converse, args=(store, f"session {n}")) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert len(store.list()) == 8
        for info in store.list():
            assert said(store.open(info.name).exchanges) == list(map(str, range(30)))


def test_each_append_takes_as_many_bytes_as_the_one_before(path: Path):
    def size_after(appended: int) -> int:
        with SessionStore(path) as store:
            save(store, "trip", *["x" * 500] * appended)
        return path.stat().st_size

    empty, first, second, third = (size_after(count) for count in (0, 250, 250, 500))
    assert second - first == pytest.approx(first - empty, rel=0.1)
    assert third - second == pytest.approx(2 * (first - empty), rel=0.1)
    assert third < 1.5 * 1000 * len(json.dumps(exchange("x" * 500).to_dict()))


def test_ten_thousand_exchanges_are_loaded_in_a_moment(path: Path):
    with SessionStore(path) as store:
        head = store.replace(
            "long", [exchange(str(n)) for n in range(10_000)], after=store.open("long").head
        )
        begun = time.process_time()
        saved = store.open("long")
        assert time.process_time() - begun < 5  # it takes a tenth of a second
        assert saved.head == head
        assert said(saved.exchanges) == list(map(str, range(10_000)))
        store.delete("long")
    assert entries(path) == set()


def test_the_errors_can_be_pickled_and_are_ours():
    for error in (StoreError("chats.db", "is full"), SessionConflictError("chats.db", "trip")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.path) == (type(error), str(error), "chats.db")
        assert isinstance(error, TreefoldError)
