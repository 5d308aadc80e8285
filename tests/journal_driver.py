"""A process that drives the errands of a journal, and what those beside it do and see."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import errands
import warm_python
from command_line import PATIENCE, environment, treefold
from support import wait
from treefold import NodeView, attach

T = TypeVar("T")

ERRANDS: Final = errands.__file__


class Driver:
    """A process that drives a journal."""

    def __init__(self, path: Path, *errands: str) -> None:
        self._talk = warm_python.Talk(ERRANDS, str(path), *errands, env=environment())
        assert self._talk.readline() == "ready\n", self._talk.complaints
        self.pid = self._talk.program.pid

    def end(self) -> None:
        self._talk.end()

    def kill(self) -> None:
        self._talk.kill()


Drive = Callable[..., Driver]


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
    done = treefold(*args, cwd=path.parent)
    return done.returncode, done.stdout, done.stderr
