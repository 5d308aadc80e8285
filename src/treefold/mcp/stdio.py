"""The standard input and output of this process, as the connection to a client.

While it is open, both are reserved for the protocol: what functions, and programs that they start,
print to stdout goes to stderr, and their stdin is empty.
"""

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from treefold.runtime.loops.threads import in_thread

_CHUNK: Final = 1 << 16


class Stdio:
    """Reads from and writes to the client, in threads, as both may block."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        # A cancelled write continues in its thread: the next message must not be mixed into it.
        self._writing = threading.Lock()

    async def read(self) -> bytes:
        """Return the next chunk from the client; empty at the end."""
        return await in_thread(os.read, self._source, _CHUNK)

    async def write(self, data: bytes) -> None:
        """Write *data* to the client."""
        await in_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        with self._writing:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._target, rest) :]


@contextmanager
def take_over_stdio() -> Generator[Stdio, None, None]:
    """Reserve stdin and stdout for the protocol until the end of the ``with`` block."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield Stdio(source, target)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # buffered output still goes to stderr
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(target)  # but not the source, which a thread may still be reading
