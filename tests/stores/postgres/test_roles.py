"""What each role of the database may do with a journal, and what it may not."""

from collections.abc import Callable, Generator
from contextlib import ExitStack

import psycopg
import pytest

from postgres_server import new_name, shared_url
from shared_stores import LEASE, TreeWriter, info
from treefold import StoreError
from treefold.core.cluster import Load, Ownership
from treefold.core.commands import AnswerQuestion, read_command
from treefold.core.errors import InvalidValueError
from treefold.runtime.observe.observer import Observer
from treefold.stores.postgres import PostgresStore, grant
from treefold.testing.store_suite import asks, exchange

TABLES = (
    "journal", "workers", "drives", "events", "nodes", "texts", "questions", "inbox", "live",
    "watched", "entries", "sessions",
)  # fmt: skip


@pytest.fixture
def owner(postgres_url: str) -> Generator[PostgresStore]:
    """The store as its owner sees it, with a tree that asks three questions."""
    with PostgresStore(postgres_url) as store:
        store.join(info("owner"), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.entries += [asks(f"1-{number}", number + 1) for number in (1, 2, 3)]
        tree.write()
        yield store


@pytest.fixture
def role(postgres_url: str) -> Generator[Callable[[str], str]]:
    """Return the URL for a new database role that may do what a worker, desk or viewer may."""
    with ExitStack() as dropped:

        def make(kind: str) -> str:
            name = new_name(kind)
            sql(f"CREATE ROLE {name} LOGIN")
            dropped.callback(sql, f"DROP OWNED BY {name}; DROP ROLE {name}")
            grant(postgres_url, kind, name)  # pyright: ignore
            grant(postgres_url, kind, name)  # pyright: ignore
            return postgres_url.replace("://postgres@", f"://{name}@")

        yield make


def sql(statement: str, url: str | None = None) -> None:
    with psycopg.connect(url or shared_url(), autocommit=True) as connection:
        connection.execute(statement.encode())


def may(url: str, statement: str) -> bool:
    """Whether a role may carry out a statement on the tables, which is then undone."""
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server) as connection:
        connection.execute(f"SET search_path = {schema}".encode())
        try:
            connection.execute(statement.encode())
        except psycopg.errors.InsufficientPrivilege:
            return False
        finally:
            connection.rollback()
        return True


def is_refused(act: Callable[[], object]) -> bool:
    with pytest.raises(StoreError, match="lacks the rights for this .*treefold store grant"):
        act()
    return True


def test_a_viewer_reads_everything_and_writes_nothing(
    owner: PostgresStore, role: Callable[[str], str]
):
    url = role("viewer")
    with PostgresStore(url) as store, Observer(store) as observer:
        assert [tree.id for tree in observer.trees()] == [1]
        assert len(store.entries(1)) == 4
        assert [question.id for question in observer.questions()] == ["1-1", "1-2", "1-3"]
        assert store.read_broadcasts() == (0, [])
        assert (store.sessions.list(), len(store.cluster.members.workers())) == ([], 1)
        store.cluster.listen(lambda _trees: None).close()
        assert is_refused(lambda: observer.answer("1-1", "allow"))
        assert is_refused(lambda: store.post("{}", node=1))
        assert is_refused(lambda: store.join(info(), lease=LEASE))
        assert is_refused(lambda: store.cluster.drives.reserve(1))
        assert is_refused(lambda: store.cluster.members.drain(1))
        assert is_refused(lambda: store.delete(1))
        assert is_refused(lambda: store.sessions.open("mine"))
    assert owner.inbox() == []
    for table in TABLES:
        assert may(url, f"SELECT * FROM {table}")
        assert not may(url, f"DELETE FROM {table}")
        assert not may(url, f"TRUNCATE {table}")
    assert not may(url, "INSERT INTO live VALUES (1, 'x')")
    assert not may(url, "CREATE TABLE more (id integer)")


def test_a_desk_answers_questions_and_does_nothing_else(
    owner: PostgresStore, role: Callable[[str], str]
):
    url = role("desk")
    with PostgresStore(url) as store, Observer(store) as observer:
        observer.answer("1-1", "allow")
        assert [question.id for question in owner.questions()] == ["1-2", "1-3"]
        assert is_refused(lambda: store.post("{}", node=1))
        for body in (
            '{"do": "cancel", "node": 1}',
            '{"do": "answer", "id": "1-3", "text": "allow"}',
            '{"do": "claim", "id": "1-2"}',
            r'{"do": "answer\udce9", "id": "1-2", "text": ""}',
            r'{"a": "\\ud800", "do": "cancel", "b": "\\ud800", "node": 1}',
            "[]",
        ):
            assert is_refused(lambda body=body: store.post(body, question="1-2"))
        assert is_refused(lambda: store.join(info(), lease=LEASE))
        assert is_refused(lambda: store.delete(1))
        assert is_refused(lambda: store.sessions.open("mine"))
    assert len(owner.inbox()) == 1
    for table in TABLES:
        assert not may(url, f"DELETE FROM {table}")
    assert not may(
        url, "INSERT INTO inbox (drive, body, token) VALUES (1, '{}', gen_random_uuid())"
    )
    assert not may(url, "UPDATE inbox SET body = '{}'")


def test_a_desk_answers_in_what_is_not_utf_8(owner: PostgresStore, role: Callable[[str], str]):
    with PostgresStore(role("desk")) as store, Observer(store) as observer:
        observer.answer("1-1", "deny: caf\udce9 \0 \\ud800", token="once")
    [message] = owner.inbox()
    answer = AnswerQuestion("1-1", "deny: caf\udce9 \0 \\ud800", token="once")
    assert read_command(message.body) == answer


def test_a_worker_adds_events_and_never_changes_one(
    owner: PostgresStore, role: Callable[[str], str]
):
    url = role("worker")
    with PostgresStore(url) as store:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 2)
        tree.note("a long text")
        assert tree.write() == 2
        assert store.cluster.members.beat(Load()).lost == frozenset()
        assert store.post('{"do": "cancel", "node": 1}', node=1)
        assert store.post('{"do": "claim", "id": "1-2"}', question="1-2")
        store.done(owner.inbox()[0].id)  # another worker has the tree
        assert len(owner.inbox()) == 2
        assert store.cluster.drives.release(Ownership(2, 2, 1), parked=False)
        owned = store.cluster.drives.adopt(2)
        assert owned is not None
        assert store.cluster.drives.adopt(1) is None
        head = store.sessions.append(
            store.sessions.open("mine").name, exchange("Hi."), after=None, preview="Hi."
        )
        assert store.sessions.fork("mine", "copy").head == head
        store.sessions.delete("mine")
        store.broadcast("hello")
        assert is_refused(lambda: store.delete(1))
        store.vacuum()  # which skips tables of others
    for table in sorted({*TABLES} - {"entries", "sessions"}):
        assert not may(url, f"DELETE FROM {table}")
        assert not may(url, f"TRUNCATE {table}")
    assert not may(url, "INSERT INTO events SELECT * FROM events")
    assert not may(url, "SELECT delete_tree(1)")
    assert not may(url, "SELECT has_messages(drives) FROM drives")
    assert not may(url, "ALTER TABLE events ADD more text")
    assert not may(
        url, "CREATE FUNCTION is_alive(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )


def test_a_table_of_the_same_name_does_not_fool_the_functions(
    owner: PostgresStore, role: Callable[[str], str]
):
    url = role("worker")
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            "CREATE TEMP TABLE workers (id bigint, seen timestamptz, lease interval)"
        )
        connection.execute("INSERT INTO workers VALUES (99, now(), '1 hour')")
        connection.execute(f"SET search_path = pg_temp, {schema}".encode())
        with pytest.raises(psycopg.Error, match="this worker counts as dead"):
            connection.execute(f"SELECT * FROM {schema}.adopt(99, 1, 0)".encode())


def test_a_role_without_a_grant_may_nothing(owner: PostgresStore, postgres_url: str):
    name = new_name("stranger")
    sql(f"CREATE ROLE {name} LOGIN")
    try:
        url = postgres_url.replace("://postgres@", f"://{name}@")
        assert is_refused(lambda: PostgresStore(url))
        schema = url.partition("?schema=")[2]
        assert not may(url, f"SELECT * FROM {schema}.events")
        sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
        for call in ("reserve(1, 0)", "drain_worker(1)", "watch()", "post(1, '', NULL, NULL)"):
            assert not may(url, f"SELECT {call}")
    finally:
        sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_grants_are_refused_in_words(owner: PostgresStore, postgres_url: str):
    with pytest.raises(
        InvalidValueError, match="role must be one of worker, desk, viewer, got 'x'"
    ):
        grant(postgres_url, "x", "postgres")  # pyright: ignore
    with pytest.raises(StoreError, match="the server has no role nobody_here; create it"):
        grant(postgres_url, "viewer", "nobody_here")
    with pytest.raises(StoreError, match="there is no journal in the schema 'elsewhere'"):
        grant(postgres_url.partition("?")[0] + "?schema=elsewhere", "viewer", "postgres")
