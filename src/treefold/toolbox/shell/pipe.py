"""File descriptors that a child process inherits.

Pipes that the event loop reads and writes, without a task and without its transports; and a file
that holds one script at a time.
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
    """A pipe whose write end a child inherits.

    Args:
        receive: is called with each chunk that arrives.
        on_end: is called when every copy of the write end is closed.
    """

    def __init__(
        self, receive: Callable[[bytes], None], on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._receive = receive
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._read_fd, write_fd = os.pipe()
        try:
            self.write_fd: int = _dup_high(write_fd)
        except OSError:
            os.close(self._read_fd)
            raise
        self._write_end_is_open = self._is_open = True
        self._has_ended = False
        os.set_blocking(self._read_fd, False)
        self.resume()

    def pause(self) -> None:
        """Receive nothing for now; the child has to wait when the pipe is full."""
        if self._is_open:
            self._loop.remove_reader(self._read_fd)

    def resume(self) -> None:
        """Receive again what arrives."""
        if self._is_open and not self._has_ended:
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
        if not self._is_open or self._has_ended:
            return 0
        try:
            chunk = os.read(self._read_fd, _CHUNK)
        except BlockingIOError:
            return 0
        if chunk:
            self._receive(chunk)
        else:  # end of file: every copy of the write end is closed
            self._has_ended = True
            self._loop.remove_reader(self._read_fd)
            self._on_end()
        return len(chunk)


class InputPipe:
    """A pipe whose read end a child inherits; what does not fit into it waits until it is read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.read_fd, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._unwritten = bytearray()
        self._is_open = self._read_end_is_open = True
        self._all_written = asyncio.Event()
        self._all_written.set()

    @property
    def is_open(self) -> bool:
        """False if it was closed, or the child has closed the read end as far as is known."""
        return self._is_open

    def write(self, data: bytes) -> None:
        """Write *data* as soon as the child reads."""
        if self._is_open:
            self._unwritten += data
            self._write()

    async def drain(self) -> None:
        """Wait until everything is written, or cannot be written any more."""
        await self._all_written.wait()

    def close_read_end(self) -> None:
        """Close this process's copy of the read end, once the child has its own."""
        if self._read_end_is_open:
            self._read_end_is_open = False
            os.close(self.read_fd)

    def close(self) -> None:
        """Close both ends; what was not written yet is lost."""
        self.close_read_end()
        if self._is_open:
            self._is_open = False
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._all_written.set()

    def _write(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._fd, self._unwritten)]
        except BlockingIOError:
            if self._all_written.is_set():
                self._all_written.clear()
                self._loop.add_writer(self._fd, self._write)
        except OSError:  # the child has closed its end
            self.close()
        else:
            self._loop.remove_writer(self._fd)
            self._all_written.set()


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
