"""Starts PgBouncer, a pooler that may stand before PostgreSQL, if it is installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from postgres_server import PATIENCE, as_user, free_port, with_query
from shared_stores import wait_until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def pooled(url: str, mode: str) -> Generator[str]:
    """Give a URL that leads to *url* through a pooler in this mode."""
    assert PGBOUNCER is not None
    parts = urlsplit(url)
    with tempfile.TemporaryDirectory(prefix="treefold-pgbouncer-") as folder:
        port, config = free_port(), Path(folder) / "pgbouncer.ini"
        config.write_text(f"""
[databases]
* = host=127.0.0.1 port={parts.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
logfile = {folder}/log
""")
        (Path(folder) / "users").write_text(f'"{parts.username}" ""\n')
        (Path(folder) / "log").touch()
        for path in (Path(folder), *Path(folder).iterdir()):
            path.chmod(0o777)
        process = subprocess.Popen(
            [PGBOUNCER, str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            **as_user(),
        )  # fmt: skip
        try:
            log = Path(folder) / "log"
            wait_until(lambda: "process up" in log.read_text() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            database = f"{parts.username}@127.0.0.1:{port}{parts.path}"
            yield with_query(f"postgresql://{database}?{parts.query}".removesuffix("?"))
        finally:
            process.terminate()
            process.wait(PATIENCE)
