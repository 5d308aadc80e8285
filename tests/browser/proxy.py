"""A proxy whose connections can be cut: data in transit is lost, and new ones are refused."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Passes on what is sent to a port of this machine, until it is cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """Break every connection, and refuse new ones until it is mended."""
        with self._lock:
            self._is_cut = True
            connections, self._open = self._open, set()
        for connection in connections:
            _close(connection)

    def mend(self) -> None:
        """Let new connections through."""
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    _close(near)
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with self._lock:
            self._open -= {source, target}
        _close(source)
        _close(target)


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
