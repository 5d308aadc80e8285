"""Finds and ends the connections to a server that runs in this process but hides its sockets."""

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

_PATIENCE = 10.0  # seconds; llama.cpp looks once a second


def hang_up(port: int) -> None:
    """End every connection to *port* and wait until the server has noticed.

    Where the system does not list the open files of a process (Windows) this does nothing.
    """
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = 0
        for connection in _connections(port):
            found += 1
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if not found:
            return
        time.sleep(0.01)


def _connections(port: int) -> Iterator[socket.socket]:
    """Yield the server's ends of the connections to *port*."""
    folder = Path("/dev/fd")
    for name in os.listdir(folder) if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # closed meanwhile, or it listens and is not connected
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                inet = connection.family == socket.AF_INET
                if inet and connection.getsockname()[1] == port and connection.getpeername():
                    yield connection
