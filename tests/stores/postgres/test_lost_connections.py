"""Connections that are cut at every moment: nothing is lost, and nothing is written twice."""

import threading
import time
from collections.abc import Generator
from contextlib import suppress
from itertools import cycle
from urllib.parse import urlsplit

import pytest

from cluster.leases import connect
from postgres_server import PostgresServer, empty_journal, new_schema, shared_url
from shared_stores import LEASE, TreeWriter, info, wait_until
from tcp_proxy import Cut, TcpProxy
from treefold import StoreError
from treefold.core.cluster import Load, Ownership
from treefold.core.store import Batch
from treefold.core.work_engine import Ticket
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import asks, called, exchange, noted

QUICK = [Cut.BEFORE, Cut.HALF, Cut.AFTER, Cut.REPLY]
HALF_SECOND = 0.5  # after which a silent connection counts as lost


@pytest.fixture
def proxy() -> Generator[TcpProxy]:
    port = urlsplit(shared_url()).port
    # The name of the channel: a notification may be sent at any moment.
    with TcpProxy(port or 5432, spare=b"treefold_") as proxy:
        yield proxy


@pytest.fixture
def url() -> Generator[str]:
    with empty_journal() as url:
        yield url


@pytest.fixture
def store(proxy: TcpProxy, url: str) -> Generator[PostgresStore]:
    """A worker whose connections go through the proxy."""
    parts = urlsplit(url)
    through = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
    with PostgresStore(through, timeout=HALF_SECOND) as store:
        store.join(info(), lease=LEASE)
        _send_notification(store, url)
        yield store


def _send_notification(store: PostgresStore, url: str) -> None:
    """Have the store open its connection for notifications before requests are cut off."""
    woken: set[int] = set()
    with PostgresStore(url) as direct:
        direct.cluster.listen(woken.update)
        TreeWriter(store, 1000).write()
        wait_until(lambda: 1000 in woken)


@pytest.mark.parametrize("cut", QUICK)
def test_an_append_that_is_cut_off_is_written_once(proxy: TcpProxy, store: PostgresStore, cut: Cut):
    tree = TreeWriter(store, 1)
    for number in range(1, 9):
        assert tree.write() == 2 * number - 1
        tree.note(f"a long text {number}")
        proxy.arm(cut)
        assert tree.write() == 2 * number
        assert proxy.cuts == number
        tree.note()
    assert [entry.seq for entry in store.entries(1)] == list(range(1, 17))


def test_entries_are_written_once_whatever_happens_to_the_connections(
    proxy: TcpProxy, store: PostgresStore
):
    tree = TreeWriter(store, 1)
    cuts = cycle([*QUICK, Cut.SILENCE, None, Cut.REPLY])
    for _ in range(20):
        tree.note("x" * 100)
        while True:
            if (cut := next(cuts)) is not None:
                proxy.arm(cut)
            try:
                tree.write()
            except StoreError:
                # As a runtime does: with what was recorded meanwhile.
                tree.note()
            else:
                break
    entries = store.entries(1)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.number for entry in entries] == list(range(1, tree.written + 1))


def test_a_silent_connection_is_given_up(proxy: TcpProxy, store: PostgresStore):
    tree = TreeWriter(store, 1)
    tree.write()
    tree.note()
    begun = time.monotonic()
    proxy.arm(Cut.SILENCE)
    assert tree.write() == 2
    assert HALF_SECOND <= time.monotonic() - begun < 20
    proxy.arm(Cut.SILENCE)
    assert store.cluster.members.beat(Load()).drain is False


@pytest.mark.parametrize("cut", QUICK)
def test_a_new_tree_that_nobody_owns_is_created_once(
    proxy: TcpProxy, store: PostgresStore, cut: Cut
):
    batch = Batch(ownership=None, entries=[called(1), noted(1, 2)], tickets=[Ticket(node=1)])
    store.trees()
    proxy.arm(cut)
    assert store.append([batch]) == [2]
    assert store.cluster.drives.owed(9) == [Ticket(node=1)]


@pytest.mark.parametrize("cut", QUICK)
def test_several_drives_are_written_once_each(proxy: TcpProxy, store: PostgresStore, cut: Cut):
    trees = [TreeWriter(store, tree) for tree in (1, 2, 3)]
    store.append([tree.batch() for tree in trees])
    for tree in trees:
        tree.written, tree.entries = 1, []
        tree.note()
    proxy.arm(cut)
    assert store.append([tree.batch() for tree in trees]) == [2, 2, 2]
    assert [store.length(tree) for tree in (1, 2, 3)] == [2, 2, 2]


@pytest.mark.parametrize("cut", QUICK)
def test_a_drive_is_adopted_and_released_though_the_reply_is_lost(
    proxy: TcpProxy, store: PostgresStore, cut: Cut
):
    store.append([
        Batch(ownership=None, entries=[called(1)], tickets=[Ticket(node=1)]),
    ])
    proxy.arm(cut)
    owned = store.cluster.drives.adopt(1)
    assert owned is not None
    assert store.append([Batch(ownership=owned, entries=[noted(1, 2)], written=1)]) == [2]
    proxy.arm(cut)
    assert store.cluster.drives.release(owned, parked=True)
    assert store.cluster.members.beat(Load()).lost == frozenset()
    assert store.cluster.drives.owed(9) == []


@pytest.mark.parametrize("cut", QUICK)
def test_a_message_is_posted_once(proxy: TcpProxy, store: PostgresStore, cut: Cut):
    store.append([Batch(ownership=Ownership(1, 1, 1), entries=[called(1), asks("1-1", 2)])])
    proxy.arm(cut)
    assert store.post("stop", node=1)
    proxy.arm(cut)
    assert store.post("yes", question="1-1")
    assert [message.body for message in store.inbox()] == ["stop", "yes"]


@pytest.mark.parametrize("cut", QUICK)
def test_slots_are_kept_and_given_back_though_connections_are_cut(
    proxy: TcpProxy, store: PostgresStore, url: str, cut: Cut
):
    limits = {"*": 1}
    with PostgresStore(url) as other:
        other.join(info(), lease=LEASE)
        store.cluster.limits.set_slots({"*": 0})
        proxy.arm(cut)
        assert store.cluster.limits.set_slots({"*": 1}, limits=limits)
        proxy.cut_all()
        assert not other.cluster.limits.set_slots({"*": 1}, limits=limits)
        store.cluster.members.beat(Load())
        proxy.arm(cut)
        assert store.cluster.limits.set_slots({"*": 0})
        assert other.cluster.limits.set_slots({"*": 1}, limits=limits)


def test_a_statement_that_arrives_after_slots_were_given_back_takes_none(url: str):
    with PostgresStore(url) as store, PostgresStore(url) as other, connect(url) as late:
        store.join(info(), lease=LEASE)
        worker, limits = store.cluster.members.worker, {"*": 1}
        other.join(info(), lease=LEASE)
        # The reply to the first was lost, and so it is not known whether it has arrived.
        store.cluster.limits.set_slots({"*": 0})
        search = "SELECT set_slots(%s, %s, %s)"
        given = '[{"name": "*", "taken": 1, "most": 1}]'
        assert late.execute(search, (worker, 0, given)).fetchone() == (False,)
        assert other.cluster.limits.set_slots({"*": 1}, limits=limits)


@pytest.mark.parametrize("cut", QUICK)
def test_a_chat_is_saved_once(proxy: TcpProxy, store: PostgresStore, cut: Cut):
    head = None
    store.sessions.open("trip")
    for number in range(6):
        with suppress(StoreError):
            proxy.arm(cut)
            store.sessions.find("trip")  # the connection may be cut here
        if number % 2:
            proxy.arm(cut)
        try:
            head = store.sessions.append("trip", exchange(f"{number}"), after=head)
        except StoreError:
            # Then nothing was kept.
            head = store.sessions.append("trip", exchange(f"{number}"), after=head)
    saved = store.sessions.open("trip")
    assert saved.exchanges == tuple(exchange(f"{number}") for number in range(6))


def test_a_server_that_is_restarted_between_appends_is_not_noticed(own_server: PostgresServer):
    with (
        new_schema(own_server.url()) as url,
        PostgresStore(url) as store,
        PostgresStore(url) as other,
    ):
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        for number in range(1, 7):
            assert tree.write() == number
            tree.note()
            if number % 2:
                own_server.restart()
            else:
                own_server.kill()
                own_server.start()
            assert other.length(1) == number
        assert store.cluster.members.beat(Load()).lost == frozenset()


def test_appends_go_on_after_a_server_was_down(own_server: PostgresServer):
    with new_schema(own_server.url()) as url, PostgresStore(url) as store:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.write()
        own_server.stop()
        tree.note()
        for _ in range(3):
            with pytest.raises(StoreError, match="cannot be reached"):
                tree.write()
        own_server.start()
        assert tree.write() == 2


def test_listeners_and_broadcasts_go_on_after_a_crash_of_the_server(own_server: PostgresServer):
    with (
        new_schema(own_server.url()) as url,
        PostgresStore(url) as store,
        PostgresStore(url) as other,
    ):
        store.join(info(), lease=LEASE)
        woken: set[int] = set()
        unknown = threading.Event()

        def wake(trees: object) -> None:
            found = list(trees)  # pyright: ignore
            woken.update(found)
            if not found:
                unknown.set()

        subscription = other.cluster.listen(wake)
        TreeWriter(store, 1).write()
        wait_until(lambda: 1 in woken)
        position, _ = other.read_broadcasts()
        store.broadcast("before")
        lines: list[str] = []

        def read() -> bool:
            nonlocal position
            position, found = other.read_broadcasts(position)
            lines.extend(found)
            return bool(found)

        wait_until(read)
        unknown.clear()
        own_server.kill()
        own_server.start()
        assert unknown.wait(60)  # something may have been missed
        TreeWriter(store, 2).write()
        wait_until(lambda: 2 in woken)

        def read_again() -> bool:
            store.broadcast("after")
            return read()

        wait_until(read_again)
        assert set(lines) == {"before", "after"}
        subscription.close()
