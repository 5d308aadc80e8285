"""Start lives of the program quickly: a process that has imported it all, and forks.

It has no thread and no loop, so that what a child gets is clean. It is itself forked from
``warm_python``, so that it has only the module of the program to import.
"""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

import warm_python

PATIENCE: Final = 90  # seconds for one life, and for all that is imported before the first


@dataclass(frozen=True)
class Life:
    """How one process ended: 0, or minus the signal that killed it; and what it printed."""

    status: int
    printed: str
    complaints: str

    @property
    def found(self) -> dict[str, Any]:
        """What it printed, as data."""
        return json.loads(self.printed)


class Nursery:
    """Has the parent of all lives, a process of its own."""

    def __init__(self, folder: Path, module: str = "crash.program") -> None:
        self._out, self._err = folder / "printed", folder / "complaints"
        path = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._parent = warm_python.Talk(
            *("-m", "crash.nursery", module, str(self._out), str(self._err)),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
            patience=PATIENCE,
        )
        self._is_ready = False

    def live(self, *arguments: str) -> Life:
        """Run the program with *arguments* to its end."""
        if not self._is_ready:
            assert self._parent.readline(), f"never ready: {self._parent.complaints}"
            self._is_ready = True
        status = self._parent.tell(json.dumps(arguments))
        assert status, f"no end after {PATIENCE} s: {arguments} {self._err.read_text()}"
        return Life(int(status), self._out.read_text(), self._err.read_text())

    def close(self) -> None:
        """End the parent."""
        self._parent.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Nurseries:
    """Several nurseries of one program, for as many threads, where no test session is."""

    def __init__(self, folder: Path, count: int, module: str = "crash.program") -> None:
        self._warm = warm_python.Parent()
        self._free: SimpleQueue[Nursery] = SimpleQueue()
        self._count = count
        for number in range(count):
            (own := folder / f"nursery-{number}").mkdir()
            self._free.put(Nursery(own, module))

    @contextmanager
    def one(self) -> Generator[Nursery]:
        """Give a nursery that no other thread uses meanwhile."""
        nursery = self._free.get()
        try:
            yield nursery
        finally:
            self._free.put(nursery)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for _ in range(self._count):
            self._free.get().close()
        self._warm.close()


def serve(main: Callable[[Sequence[str]], None], out: str, err: str) -> None:
    """Fork a child for each line of arguments, and say how it ended."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _live(main, json.loads(line), out, err)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _live(
    main: Callable[[Sequence[str]], None], arguments: Sequence[str], out: str, err: str
) -> None:
    status = 1
    try:
        for number, path in (1, out), (2, err):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, number)
            os.close(file)
        main(arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the other end reads it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main = import_module(sys.argv[1]).main
    gc.collect()
    gc.freeze()  # or every life would look at all that was imported
    serve(main, sys.argv[2], sys.argv[3])
