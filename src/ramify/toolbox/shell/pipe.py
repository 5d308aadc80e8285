"""A pipe whose write end is a child's and whose read end is read by the loop, with no task."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

_FIRST: Final = 100  # out of the way of those that a script uses
_CHUNK: Final = 1 << 16
_CAPACITY: Final = 1 << 20  # bytes that one can hold, at most


class Pipe:
    """What arrives is handed to *receive* as it comes."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        import fcntl  # noqa: PLC0415 - Windows has none, and is told so by whoever starts a shell

        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._end, far = os.pipe()
        try:
            self.far_end: int = fcntl.fcntl(far, fcntl.F_DUPFD_CLOEXEC, _FIRST)
        except OSError:
            os.close(self._end)
            raise
        finally:
            os.close(far)
        self._far_is_open = self._is_open = True
        os.set_blocking(self._end, False)
        self._loop.add_reader(self._end, self._read)

    def drain(self) -> None:
        """Receive now what has been written by now."""
        left = _CAPACITY  # who goes on writing does not keep us here
        while left > 0 and (got := self._read()):
            left -= got

    def close_far_end(self) -> None:
        """Leave the write end to the child."""
        if self._far_is_open:
            self._far_is_open = False
            os.close(self.far_end)

    def close(self) -> None:
        """Receive no more."""
        self.close_far_end()
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._end)
            os.close(self._end)

    def _read(self) -> int:
        if not self._is_open:
            return 0
        try:
            chunk = os.read(self._end, _CHUNK)
        except BlockingIOError:
            return 0
        if chunk:
            self._receive(chunk)
        else:  # nobody has the other end any more
            self._loop.remove_reader(self._end)
        return len(chunk)
