"""What a user is told when a journal in PostgreSQL cannot be used: one sentence, and no secret."""

import logging
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from pgbouncer import PGBOUNCER, pooled
from postgres_server import PASSWORDED, free_port, new_name, shared_url
from shared_stores import LEASE, TreeWriter, info, wait_until
from treefold import StoreBusyError, StoreError
from treefold.core.errors import ClosedError, InvalidValueError, UsageError
from treefold.core.store import nonblocking
from treefold.stores.postgres import PostgresStore, grant, migrate
from treefold.stores.postgres.migration import VERSION

SECRET = "s3cret-passw0rd"


def sql(*statements: str, url: str | None = None) -> list[Any]:
    with psycopg.connect(url or shared_url(), autocommit=True) as connection:
        for statement in statements[:-1]:
            connection.execute(statement.encode())
        found = connection.execute(statements[-1].encode())
        return found.fetchall() if found.description else []


@contextmanager
def new_role(*options: str) -> Generator[str]:
    name = new_name("role")
    sql(f"CREATE ROLE {name} LOGIN {' '.join(options)}")
    try:
        yield name
    finally:
        sql(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def as_role(url: str, role: str) -> str:
    """Return *url* for another role."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()


def refused(act: Callable[[], object], kind: type[Exception] = StoreError) -> str:
    """Return what *act* is refused with; there is no secret in it, nor in its traceback."""
    with pytest.raises(kind) as raised:
        act()
    assert SECRET not in "".join(traceback.format_exception(raised.value))
    assert "psycopg" not in "".join(traceback.format_exception_only(raised.value))
    assert raised.value.__cause__ is None
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_server_that_does_not_run():
    url = f"postgresql://me:{SECRET}@127.0.0.1:{free_port()}/journals?schema=mine"
    name = url.replace(f":{SECRET}", "")
    said = refused(lambda: PostgresStore(url))
    assert said.startswith(f"{name}: the server cannot be reached (")
    assert said.endswith("); check that it runs, and the host and port of the URL")


def test_a_wrong_password(postgres_url: str):
    sql(f"DO $$ BEGIN CREATE ROLE {PASSWORDED}; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    with new_role("PASSWORD 'right'", f"IN ROLE {PASSWORDED}") as role:
        wrong = as_role(postgres_url, f"{role}:{SECRET}")
        said = refused(lambda: PostgresStore(wrong))
        assert f"the server refused the password of {role}; correct it in the URL" in said
        said = refused(lambda: PostgresStore(as_role(postgres_url, role)))
        assert f"the server refused the password of {role}" in said
        sql(f"GRANT CREATE ON DATABASE {urlsplit(postgres_url).path[1:]} TO {role}")
        with PostgresStore(as_role(postgres_url, f"{role}:right")) as store:
            assert "right" not in (store.name + repr(store))


def test_a_database_or_a_role_that_does_not_exist(postgres_url: str):
    parts = urlsplit(postgres_url)
    said = refused(lambda: PostgresStore(parts._replace(path="/nowhere").geturl()))
    assert "there is no database nowhere; create it: createdb nowhere" in said
    said = refused(lambda: PostgresStore(as_role(postgres_url, "nobody_at_all")))
    assert "the server has no role nobody_at_all; create it: createuser nobody_at_all" in said


def test_a_journal_that_does_not_exist_and_may_not_be_created(postgres_url: str):
    schema = postgres_url.rpartition("=")[2]
    with new_role() as role:
        said = refused(lambda: PostgresStore(as_role(postgres_url, role)))
        assert (
            f"there is no journal in the schema '{schema}', and {role} may not create it; have its"
            " owner run: treefold store migrate URL"
        ) in said
    said = refused(lambda: PostgresStore(postgres_url, create=False))
    assert f"there is no journal in the schema '{schema}'; have its owner run:" in said
    assert sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'") == []
    assert migrate(postgres_url) is True
    assert migrate(postgres_url) is False
    PostgresStore(postgres_url, create=False).close()


def test_a_role_that_may_not_read_the_journal(postgres_url: str):
    migrate(postgres_url)
    with new_role() as role:
        said = refused(lambda: PostgresStore(as_role(postgres_url, role)))
        assert "lacks the rights for this (permission denied for schema" in said
        assert "treefold store grant URL --role ROLE --to NAME" in said


def test_a_journal_of_another_version(postgres_url: str):
    schema = postgres_url.rpartition("=")[2]
    migrate(postgres_url)
    for version, age in ((VERSION - 1, "an older"), (VERSION + 1, "a newer")):
        sql(f"UPDATE {schema}.journal SET version = {version}")
        for act in (lambda: PostgresStore(postgres_url), lambda: migrate(postgres_url)):
            assert refused(act).endswith(
                f"{age} treefold has written it (version {version}, this one reads {VERSION}): use"
                " that treefold for it, or name another schema in the URL: ?schema=NAME"
            )


def test_a_schema_with_tables_of_another_program(postgres_url: str):
    schema = postgres_url.rpartition("=")[2]
    sql(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.nodes (id integer)")
    said = refused(lambda: PostgresStore(postgres_url))
    assert f"the schema '{schema}' has tables of another program; name another one in" in said
    sql(f"CREATE TABLE {schema}.journal (entry text)")
    assert "has tables of another program" in refused(lambda: PostgresStore(postgres_url))
    assert sql(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'") == [(2,)]


def test_a_database_that_cannot_hold_every_text():
    name = new_name()
    sql(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        url = urlsplit(shared_url())._replace(path=f"/{name}").geturl()
        said = refused(lambda: PostgresStore(url))
        assert f"the database {name} is encoded in SQL_ASCII; create one in UTF8" in said
    finally:
        sql(f"DROP DATABASE {name}")


def test_a_server_that_is_read_only(postgres_url: str):
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        TreeWriter(store, 1).write()
    with new_role() as role:
        grant(postgres_url, "worker", role)
        sql(f"ALTER ROLE {role} SET default_transaction_read_only = on")
        with PostgresStore(as_role(postgres_url, role)) as replica:
            assert [tree.id for tree in replica.trees()] == [1]
            assert replica.read_broadcasts() == (0, [])
            said = refused(lambda: replica.join(info(), lease=LEASE))
            assert "this server is a read-only replica; give the URL of the primary" in said


def test_a_url_that_is_none():
    for odd in (
        f"postgresql://me:{SECRET}@host/db?nonsense=1",
        f"postgresql://me:{SECRET}@[::1/db",
        f"postgresql://me:{SECRET}@host/db?schema=",
        f"postgresql://me:{SECRET}@host/db?schema={'x' * 64}",
    ):
        refused(lambda odd=odd: PostgresStore(odd), InvalidValueError)


@pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pooler_that_shares_sessions(postgres_url: str, mode: str):
    migrate(postgres_url)
    with pooled(postgres_url, mode) as url:
        said = refused(lambda: PostgresStore(url))
        assert "a pooler in transaction mode stands before the server; connect to" in said


@pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
def test_a_pooler_that_gives_each_client_a_session_is_fine(postgres_url: str):
    with pooled(postgres_url, "session") as url, PostgresStore(url) as store:
        store.join(info(), lease=LEASE)
        TreeWriter(store, 1).write()
        assert store.length(1) == 1


def test_a_row_that_another_program_has_locked(postgres_url: str):
    schema = postgres_url.rpartition("=")[2]
    with PostgresStore(postgres_url) as store, psycopg.connect(shared_url()) as other:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.write()
        tree.note()
        other.execute(f"SELECT 1 FROM {schema}.drives FOR UPDATE".encode())
        with nonblocking():
            said = refused(tree.write, StoreBusyError)
        assert said.endswith("another program has had a part of it locked for too long; try again")
        other.rollback()
        with nonblocking():
            assert tree.write() == 2


def test_an_event_loop_does_not_wait_for_a_connection(postgres_url: str):
    with PostgresStore(postgres_url) as store, nonblocking():
        said = refused(store.trees, StoreBusyError)
        assert "no connection is open, and an event loop must not wait for one" in said


def test_a_store_that_was_closed(postgres_url: str):
    store = PostgresStore(postgres_url)
    store.close()
    store.close()
    assert repr(store).endswith(", closed>")
    for act in (store.trees, store.sessions.list, lambda: store.post("x", question="1-1")):
        said = refused(act, ClosedError)
        assert said == f"{store.name} was closed; open it again"
    store.broadcast("nobody hears it")


def test_a_forked_process_opens_its_own_store(postgres_url: str, monkeypatch: pytest.MonkeyPatch):
    with PostgresStore(postgres_url) as store:
        with monkeypatch.context() as patched:
            patched.setattr("os.getpid", lambda: -1)
            said = refused(store.trees, UsageError)
        assert "this process was forked from it; open it here as well" in said


def test_a_failing_callback_is_logged_and_the_next_is_called(
    postgres_url: str, caplog: pytest.LogCaptureFixture
):
    woken: set[int] = set()

    def fail(_trees: object) -> None:
        raise ValueError("not today")

    with caplog.at_level(logging.ERROR), PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        store.cluster.listen(fail)
        store.cluster.listen(woken.update)
        TreeWriter(store, 1).write()
        wait_until(lambda: 1 in woken)
    assert "a callback for changes of the journal failed" in caplog.text
