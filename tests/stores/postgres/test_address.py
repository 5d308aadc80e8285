"""URLs of journals: the schema, what is shown of them, and who has to prove who it is."""

import logging

import pytest

from treefold.core.errors import InvalidValueError
from treefold.stores.postgres.address import parse_url
from treefold.stores.urls import is_url, public_name

VERIFIED = {"sslmode": "verify-full", "sslrootcert": "system"}


@pytest.fixture(autouse=True)
def nothing_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
):
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me:secret@db.example/app", "postgresql://me@db.example/app"),
        ("postgres://me:secret@db.example:6543/app", "postgresql://me@db.example:6543/app"),
        ("postgresql:///app?host=/run/postgresql", "postgresql://%2Frun%2Fpostgresql/app"),
        ("postgresql://[::1]:5432/app", "postgresql://[::1]:5432/app"),
        ("postgresql://a,b:7/app", "postgresql://a,b:7/app"),
        ("postgresql://me@h/app?password=secret", "postgresql://me@h/app"),
        ("postgresql://m%40e:p%40ss@h/a%20b", "postgresql://m%40e@h/a%20b"),
        ("postgresql://h/app?schema=treefold", "postgresql://h/app"),
        ("postgresql://h/app?schema=team%20a&sslpassword=secret", "postgresql://h/app?schema=team+a"),
    ],
)  # fmt: skip
def test_the_name_of_a_journal_has_no_secret(url: str, name: str):
    address = parse_url(url)
    assert address.name == name
    assert repr(address) == f"Address({name})"
    assert parse_url(name).name == name
    assert "secret" not in public_name(url)


def test_the_schema_is_a_parameter_of_the_url():
    assert parse_url("postgresql://h/app").schema == "treefold"
    address = parse_url("postgresql://h/app?connect_timeout=3&schema=Team%20A&options=-c%20a%3Db")
    assert address.schema == "Team A"
    assert address.parameters["connect_timeout"] == "3"
    assert address.parameters["options"] == "-c a=b"


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "127.0.0.1", "127.1.2.3", "[::1]", "%2Frun%2Fpostgresql", "localhost,[::1]"],
)
def test_a_server_on_this_machine_need_not_prove_who_it_is(host: str):
    assert "sslmode" not in parse_url(f"postgresql://{host}/app").parameters


@pytest.mark.parametrize("host", ["db.example", "10.0.0.7", "[fd00::1]", "localhost,db.example"])
def test_a_server_on_another_machine_has_to_prove_who_it_is(host: str):
    parameters = parse_url(f"postgresql://{host}/app").parameters
    assert VERIFIED.items() <= parameters.items()


def test_the_environment_may_name_another_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PGHOST", "db.example")
    assert VERIFIED.items() <= parse_url("postgresql:///app").parameters.items()
    assert "sslmode" not in parse_url("postgresql://localhost/app").parameters
    monkeypatch.setenv("PGSSLROOTCERT", "/etc/ca.crt")
    parameters = parse_url("postgresql:///app").parameters
    assert parameters["sslmode"] == "verify-full"
    assert "sslrootcert" not in parameters


def test_a_url_that_says_otherwise_is_believed_with_a_warning(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        parameters = parse_url("postgresql://me:secret@db.example/app?sslmode=require").parameters
        assert (parameters["sslmode"], "sslrootcert" in parameters) == ("require", False)
    [record] = caplog.records
    assert "with sslmode=require another machine could pretend to be this server" in record.message
    assert "secret" not in record.message
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        parse_url("postgresql://db.example/app?sslmode=verify-full&sslrootcert=ca.crt")
        parse_url("postgresql://localhost/app?sslmode=disable")
        parse_url("postgresql:///app?service=journals")
    assert caplog.records == []


def test_what_is_no_url_of_postgres_is_refused():
    for odd in ("postgresql://h/app?nonsense=1", "postgresql://h/app?schema=", "postgresql://[::1"):
        with pytest.raises(InvalidValueError):
            parse_url(odd)


def test_only_a_url_is_taken_for_one():
    assert is_url("postgresql://h/app")
    assert is_url("Postgres://h/app")
    assert not any(map(is_url, ("run.db", "postgresql", "/a/postgresql:/b", 7, None)))
    assert public_name("run.db") == "run.db"
