"""The commands on a journal in PostgreSQL, which is given as a URL."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from command_results import treefold
from postgres_server import new_name, shared_url
from shared_stores import LEASE, TreeWriter, info
from support import add
from treefold import MemoryStore, Runtime
from treefold.stores import export_tree, import_tree
from treefold.stores.postgres import PostgresStore
from treefold.testing.store_suite import asks, called, write


@pytest.fixture
def url(postgres_url: str, tmp_path: Path) -> str:
    """A journal with a run of ``add`` that has ended, imported from a file."""
    here = MemoryStore()
    with Runtime([add], store=here) as runtime:
        node = runtime.invoke(add, {"a": 1, "b": 2}, key="nightly")
        assert node.result() == 3
    export_tree(here, node.id, tmp_path / "add.jsonl")
    with PostgresStore(postgres_url) as store:
        import_tree(store, tmp_path / "add.jsonl")
        assert store.cluster.drives.owed(9) == []
    return postgres_url


def command(url: str, *words: str, **options: Any) -> str:
    """Run a command on the journal; return what it prints."""
    done = treefold(*words, "--store", url, **options)
    assert (done.code, done.err) == (0, ""), done
    return done.out


def test_commands_that_read_take_a_url(url: str, tmp_path: Path):
    [row] = json.loads(command(url, "ps", "--json"))
    assert (row["function"], row["state"], row["key"]) == ("add", "success", "nightly")
    assert "add" in command(url, "ps")
    assert "add" in command(url, "tree", "nightly")
    assert "add" in command(url, "stack")
    assert "add" in command(url, "flame")
    assert json.loads(command(url, "questions", "--json")) == []
    page = tmp_path / "page.html"
    command(url, "export", "--html", str(page), "--tree", str(tmp_path / "copy.jsonl"))
    assert "add" in page.read_text()
    assert (tmp_path / "copy.jsonl").read_text().count("\n") > 3


def test_a_run_goes_from_one_journal_to_another(url: str, tmp_path: Path):
    copy = tmp_path / "copy.jsonl"
    command(url, "export", "nightly", "--tree", str(copy))
    out = command(str(tmp_path / "run.db"), "import", "--tree", str(copy))
    assert out == f"add is now run 1 of {tmp_path}/run.db\n"
    out = command(url, "import", "--tree", str(copy))
    server = urlsplit(url)
    place = f"postgresql://{server.hostname}:{server.port}{server.path}"
    assert out == f"add is now run 2 of {place}; its key 'nightly' belongs to another run\n"
    assert [row["id"] for row in json.loads(command(url, "ps", "--json"))] == [1, 2]
    assert command(url, "delete", "1", "--yes").startswith("add (run 1) was deleted")
    assert [row["id"] for row in json.loads(command(url, "ps", "--json"))] == [2]
    assert command(url, "vacuum") == "the server uses the space again\n"


def test_an_open_run_that_is_imported_is_not_owed(url: str, tmp_path: Path):
    here = MemoryStore()
    here.join()
    write(here, [called(1, key="=open"), called(2, tree=1, parent=1), asks("2-1", 2, tree=1)])
    export_tree(here, 1, tmp_path / "open.jsonl")
    done = treefold("import", "--tree", str(tmp_path / "open.jsonl"), "--store", url)
    assert (done.code, done.out.partition(" of ")[0]) == (0, "f is now run 2")
    assert "f (run 2) has not ended, and stays as it is" in done.err
    with PostgresStore(url) as store:
        assert store.cluster.drives.owed(9) == []
        assert [question.id for question in store.questions()] == ["3-1"]


def test_commands_that_act_leave_a_message_for_the_owner_of_the_run(url: str):
    with PostgresStore(url) as store:
        store.join(info(), lease=LEASE)
        tree, number = store.cluster.drives.reserve(1, 1)
        assert (tree, number) == (2, 2)
        done = treefold("fork", "1", "--args", '{"a": 5, "b": 6}', "--wait", "0", "--store", url)
        assert done.code == 3, done
        [message] = store.inbox()
        assert json.loads(message.body)["do"] == "fork"
        assert [ticket.node for ticket in store.cluster.drives.owed(9)] == [1]
        assert treefold("ps", "--store", url).code == 0


def test_the_journal_may_come_from_the_environment(url: str):
    done = treefold("ps", "--json", env={"TREEFOLD_STORE": url})
    assert [row["function"] for row in json.loads(done.out)] == ["add"]


def test_the_tables_are_created_and_shared(postgres_url: str):
    done = treefold("ps", "--store", postgres_url)
    assert done.code == 2
    assert "there is no journal in the schema" in done.err
    assert "treefold store migrate URL" in done.err
    server = urlsplit(postgres_url)
    name = f"postgresql://{server.hostname}:{server.port}{server.path}"
    done = treefold("store", "migrate", postgres_url)
    assert (done.code, done.out) == (0, f"the journal was created in {name}\n")
    done = treefold("store", "migrate", env={"TREEFOLD_STORE": postgres_url})
    assert (done.code, done.out) == (0, f"{name} has a journal already\n")
    role = new_name("viewer")
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            done = treefold("store", "grant", postgres_url, "--role", "viewer", "--to", role)
            assert (done.code, done.out) == (0, f"{role} may use {name} as a viewer now\n")
            as_viewer = server._replace(netloc=f"{role}@{server.hostname}:{server.port}").geturl()
            assert treefold("ps", "--store", as_viewer).out == "no runs yet\n"
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["migrate", "run.db"], "URL must be postgresql://..., got 'run.db'"),
        (["grant", "postgresql://h/d"], "grant needs --role worker, desk or viewer, and --to NAME"),
        (["grant", "postgresql://h/d", "--role", "x"], "is not one of 'worker', 'desk', 'viewer'"),
        (["burn", "postgresql://h/d"], "'burn' is not one of 'migrate', 'grant'"),
    ],
)
def test_wrong_usage_is_said(words: list[str], said: str):
    done = treefold("store", *words)
    assert done.code == 2
    assert said in done.err


def test_a_password_is_not_printed(url: str):
    server = urlsplit(url)
    wrong = server._replace(netloc=f"me:s3cret@127.0.0.1:{server.port}").geturl()
    for words in (
        ["ps", "--store", wrong],
        ["store", "migrate", wrong],
        ["run", "x", "--store", wrong],
    ):
        done = treefold(*words)
        assert done.code == 2
        assert "s3cret" not in done.out + done.err


def test_a_parked_run_is_counted_with_its_questions(postgres_url: str):
    with PostgresStore(postgres_url) as store:
        store.join(info(), lease=LEASE)
        tree = TreeWriter(store, 1)
        tree.entries += [asks("1-1", 2), asks("1-2", 3)]
        tree.write()
        [row] = json.loads(command(postgres_url, "ps", "--json"))
        assert (row["parked"], row["questions"]) == (True, 2)
