"""Servers that all workers of a test run share; the first test that needs one starts it.

The process that starts the workers makes a ``SharedServers``, and closes it in the end; the workers
find it through their environment.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Final

PATIENCE: Final = 60.0  # seconds, on a busy machine

_FOLDER: Final = "TREEFOLD_TEST_SERVERS"  # the variable that names the folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A server that was started.

    Attributes:
        address: where it is reached.
        folder: has everything of it.
        ending: the signal that ends it.
    """

    pid: int
    address: str
    folder: str
    ending: int = signal.SIGKILL


class SharedServers:
    """The servers of a test run."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="treefold-tests-"))
        os.environ[_FOLDER] = str(self._folder)

    def close(self) -> None:
        """Stop the servers that tests have started."""
        os.environ.pop(_FOLDER, None)
        for known in self._folder.glob("*.json"):
            server = Started(**json.loads(known.read_text()))
            with suppress(ProcessLookupError):
                os.kill(server.pid, server.ending)
                _wait_for_end(server.pid)
            shutil.rmtree(server.folder, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def shared_address(name: str, start: Callable[[], Started]) -> str:
    """Return the address of a server of this test run; *start* starts it if it does not run."""
    known = Path(os.environ[_FOLDER]) / f"{name}.json"
    with _locked(known.with_suffix(".lock")):
        if not known.exists():
            known.write_text(json.dumps(asdict(start())))
        return json.loads(known.read_text())["address"]


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("a") as file:
        flock(file, LOCK_EX)
        yield


def _wait_for_end(pid: int) -> None:
    """Wait until a process has ended, which may be no child of this one."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
