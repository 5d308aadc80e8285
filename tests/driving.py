"""A process that drives the errands of a journal, and what those beside it do and see."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import errands
from command_line import PATIENCE, environment, ramify
from ramify import NodeView, attach

T = TypeVar("T")

ERRANDS: Final = errands.__file__


class Driver:
    """A process that drives a journal."""

    def __init__(self, path: Path, *errands: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, ERRANDS, str(path), *errands],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.start()
        assert self.process.stdout.readline() == "ready\n"
        watchdog.cancel()

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        with suppress(ValueError):  # its pipes were closed already
            self.process.communicate(timeout=PATIENCE)


Drive = Callable[..., Driver]


def wait(condition: Callable[[], T | None]) -> T:
    """Wait until *condition* holds, and return what it gave."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
    return found


def asked(path: Path, count: int = 1) -> list[str]:
    """Wait for so many questions; return their ids."""

    def look() -> list[str] | None:
        with attach(path) as observer:
            ids = [question.id for question in observer.questions()]
            return ids if len(ids) == count else None

    return wait(look)


def seen(path: Path, node: int, condition: Callable[[NodeView], bool]) -> NodeView:
    """Wait for a view of a top-level call that *condition* holds for."""
    with attach(path) as observer:
        wait(lambda: [tree for tree in observer.trees() if tree.id == node])
        view = observer.get_view(node)
        while not condition(view):
            view = observer.watch(node, view.update_seqnum, timeout=PATIENCE).result()
        return view


def is_over(view: NodeView) -> bool:
    return view.state.final


def act(path: Path, *args: str) -> tuple[int, str, str]:
    """Run a command beside the journal; it finds that by itself."""
    done = ramify(*args, cwd=path.parent)
    return done.returncode, done.stdout, done.stderr
