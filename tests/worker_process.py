"""``treefold worker`` in a process of its own, and calls that are submitted to it."""

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import warm_python
from command_results import PATIENCE, Done, environment, treefold
from support import wait
from treefold import attach

TESTS: Final = Path(__file__).parent
FUNCTIONS: Final = "worker_functions"
LEASE: Final = 3.0  # seconds


class WorkerProcess:
    """A worker with the functions of ``worker_functions``, which is ready when this is made.

    If it is *doomed*, it may have ended by then. If a *program* is given, it works with a Runtime
    of that instead, which has all options itself.

    Attributes:
        name: its name, unless an option says otherwise.
    """

    def __init__(
        self,
        url: str,
        name: str,
        folder: Path,
        options: Sequence[str] = (),
        *,
        doomed: bool = False,
        program: str = "",
    ) -> None:
        self.name = name
        self._file = folder / f"{name}.log"
        words = [FUNCTIONS, "--name", name, "--lease", f"{LEASE:g}", "-v", *options]
        words += ["--model", f"scripted:{TESTS / 'worker_functions.py'}:reply"]
        if program:
            words = [program, "-v", *options]
        with self._file.open("wb") as log, Path(os.devnull).open("rb") as nothing:
            self._program = warm_python.start(
                "-m",
                "treefold",
                "worker",
                *words,
                files=(nothing.fileno(), log.fileno(), log.fileno()),
                env=environment(TREEFOLD_STORE=url),
                cwd=TESTS,
            )
        wait(lambda: " is ready " in self.said or self._program.poll() is not None)
        assert doomed or self._program.poll() is None, self.said

    @property
    def said(self) -> str:
        """What it has printed."""
        return self._file.read_text()

    @property
    def health(self) -> str:
        """Where its health checks are."""
        # It says so for each of its stores.
        (url,) = set(re.findall(r"health at (http://\S+)", self.said))
        return url

    @property
    def pid(self) -> int:
        return self._program.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._program.kill()

    def wait(self) -> int:
        """Wait for its end; return its exit code, or minus the signal that ended it."""
        return self._program.wait(PATIENCE)

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._program.poll() is not None


class StartWorker(Protocol):
    """Starts a worker."""

    def __call__(self, *options: str, name: str = ...) -> WorkerProcess: ...


def detach(url: str, function: str, *options: object) -> Done:
    """Submit a call."""
    return treefold(
        "run", f"{FUNCTIONS}:{function}", *options, "--detach", "--store", url, cwd=TESTS
    )


def submit(url: str, function: str, *options: object) -> int:
    """Submit a call; return the id of its run."""
    done = detach(url, function, *options)
    assert done.code == 0, done.err
    with attach(url) as observer:
        return next(row.id for row in observer.trees() if row.number == int(done.out))


def result_of(url: str, node: int) -> object:
    """Wait for the end of a run; return what it returned."""
    with attach(url) as observer:
        return wait(lambda: view if (view := observer.get_view(node)).state.final else None).outputs
