"""The standard input and output of this process, as a connection to a client.

While it is open, both belong to the protocol alone: what functions, and the programs that they
start, print to stdout goes to stderr, and what they read from stdin is empty.
"""

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from treefold.runtime.threads import in_thread

_CHUNK: Final = 1 << 16


class Stdio:
    """What is written to and read from the client, in threads: either end may keep us waiting."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._turn = threading.Lock()  # of whole messages, even if nobody waits for one any more

    async def more(self) -> bytes:
        """Return what the client says next; nothing at its end."""
        return await in_thread(os.read, self._source, _CHUNK)

    async def write(self, data: bytes) -> None:
        """Say something to the client."""
        await in_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        with self._turn:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._target, rest) :]


@contextmanager
def own_stdio() -> Generator[Stdio, None, None]:
    """Take stdin and stdout for the protocol until the end of the block."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield Stdio(source, target)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # to where it was printed
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(target)  # but not the source, which a thread may still read
