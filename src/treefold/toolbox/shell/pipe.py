"""File descriptors that a child process inherits.

A pipe that the event loop reads, without a task; and a file that holds one script at a time.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from typing import Final

_MIN_FD: Final = 100  # above the descriptors that scripts use
_CHUNK: Final = 1 << 16
_MAX_DRAINED: Final = 1 << 20  # bytes; the most that a pipe can hold


class Pipe:
    """A pipe whose write end a child inherits; *receive* is called with each chunk that arrives."""

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._read_fd, write_fd = os.pipe()
        try:
            self.write_fd: int = _dup_high(write_fd)
        except OSError:
            os.close(self._read_fd)
            raise
        self._write_end_is_open = self._is_open = True
        os.set_blocking(self._read_fd, False)
        self._loop.add_reader(self._read_fd, self._read)

    def drain(self) -> None:
        """Receive what has been written so far."""
        remaining = _MAX_DRAINED  # a limit, because the writer may not stop writing
        while remaining > 0 and (got := self._read()):
            remaining -= got

    def close_write_end(self) -> None:
        """Close this process's copy of the write end, once the child has its own."""
        if self._write_end_is_open:
            self._write_end_is_open = False
            os.close(self.write_fd)

    def close(self) -> None:
        """Close both ends; nothing is received any more."""
        self.close_write_end()
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)

    def _read(self) -> int:
        if not self._is_open:
            return 0
        try:
            chunk = os.read(self._read_fd, _CHUNK)
        except BlockingIOError:
            return 0
        if chunk:
            self._receive(chunk)
        else:  # end of file: every copy of the write end is closed
            self._loop.remove_reader(self._read_fd)
        return len(chunk)


class ScriptFile:
    """An unnamed file that a child process can read as ``/dev/fd/N``."""

    def __init__(self) -> None:
        # In memory where the system can, so that a full disk does not matter.
        if hasattr(os, "memfd_create"):
            self.fd: int = _dup_high(os.memfd_create("treefold"))
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = _dup_high(os.dup(file.fileno()))
        self._is_open = True

    def write(self, script: bytes) -> None:
        """Replace the content of the file."""
        os.ftruncate(self.fd, 0)
        os.lseek(self.fd, 0, os.SEEK_SET)
        view = memoryview(script)
        while view:
            view = view[os.write(self.fd, view) :]
        # On macOS the reader shares this file position.
        os.lseek(self.fd, 0, os.SEEK_SET)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.fd)


def _dup_high(fd: int) -> int:
    """Replace *fd* by a duplicate with a high number."""
    import fcntl  # noqa: PLC0415 - absent on Windows, where no shell is started

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _MIN_FD)
    finally:
        os.close(fd)
