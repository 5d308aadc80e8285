"""The example in the help of every command is run, in a folder where it makes sense.

There is the small journal as ``run.db``, what wrote it as ``report.py``, a run of it as
``run.jsonl``, and the folders of the project that examples name. There is no network, but for a
database on this machine.
"""

import os
import shlex
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

import warm_python
from postgres_server import shared_url
from small_journal import write_small_journal
from support import heed_interrupts
from treefold import SqliteStore
from treefold.cli.commands import COMMANDS, load_command
from treefold.stores import export_tree
from treefold.stores.postgres.store import PostgresStore

ROOT = Path(__file__).parent.parent.parent
NOWHERE = "http://127.0.0.1:9"  # no server listens there
# Exit codes of examples that do not end with 0. No agent runs in the small journal.
DIFFERENT = {"diff": 1, "say": 2}
SERVING = {"mcp": 130, "view": 130, "worker": 0}  # exit codes of those that are interrupted
SHARED = {"worker", "workers"}  # which need the database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_small_journal(tmp_path / "run.db")
    with SqliteStore(tmp_path / "run.db") as store:
        export_tree(store, 1, tmp_path / "run.jsonl")
    (tmp_path / "report.py").write_bytes((ROOT / "tests" / "small_journal.py").read_bytes())
    for name in ("examples", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def example_of(name: str) -> list[str]:
    lines = [line.strip() for line in (load_command(name).help or "").splitlines()]
    (example,) = [line for line in lines if line.startswith("example: treefold ")]
    return shlex.split(example.removeprefix("example: treefold "))


def environment() -> dict[str, str]:
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), NOWHERE)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(("_API_KEY", "_BASE_URL", "_proxy", "_PROXY"))
        and (name == "TREEFOLD_CACHE" or not name.startswith("TREEFOLD_"))
    }
    return kept | proxies | {"PIP_NO_INDEX": "1", "no_proxy": "127.0.0.1", "BROWSER": "true"}


def database() -> dict[str, str]:
    """Create the database that an example names; return what leads there."""
    server = urlsplit(shared_url())
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS journals")
        connection.execute("CREATE DATABASE journals")
    return {"PGPORT": str(server.port), "PGUSER": str(server.username)}


def app_database(name: str = "app") -> dict[str, str]:
    """Create a database with a journal, if need be; return how ``localhost`` is the test server."""
    url = urlsplit(shared_url())
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(4747)")
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if found.fetchone() is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    PostgresStore(urlunsplit(url._replace(path=f"/{name}"))).close()
    return {"PGPORT": str(url.port), "PGUSER": str(url.username)}


@pytest.mark.usefixtures("smollm2")  # which some need, and may not fetch
@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_every_command_does_what_it_says(name: str, folder: Path):
    process = subprocess.Popen(
        warm_python.command("-m", "treefold", *example_of(name)),
        cwd=folder,
        env=environment()
        | (database() if name == "store" else {})
        | (app_database() if name in SHARED else {}),
        preexec_fn=heed_interrupts,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if name in SERVING:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(f"treefold {name}: ")
            process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    expected = SERVING.get(name, DIFFERENT.get(name, 0))
    assert process.returncode == expected, told
    assert "Traceback (most recent call last)" not in told
    assert name in SERVING or shown or name in {"chat", "export", "say"}
