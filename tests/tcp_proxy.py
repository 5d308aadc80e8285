"""A TCP proxy on loopback that breaks the connections of its clients, as a network may.

It is armed for the next bytes that a client sends; other connections are not affected.
"""

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final, Self

PATIENCE: Final = 60.0  # seconds
_CHUNK: Final = 1 << 16


class Cut(Enum):
    """What happens to the next request of a client."""

    BEFORE = "the request does not reach the server"
    HALF = "half of the request reaches the server"
    AFTER = "the request reaches the server, and the connection ends at once"
    REPLY = "the server replies, and the connection ends before the client has the reply"
    HELD = "the server replies, and the connection ends after a pause, without the reply"
    SILENCE = "the request is swallowed, and the connection stays open"
    FREEZE = "half of the request reaches the server, and the rest after a pause"


class TcpProxy:
    """Forwards connections to a port of this machine.

    Args:
        spare: a request that has these bytes is not cut off.
        pause: is called by ``Cut.FREEZE`` and ``Cut.HELD``, and returns when it is over.

    Attributes:
        port: the one that clients connect to.
        cuts: how many requests were cut off.
        is_away: whether new connections end at once.
    """

    def __init__(
        self, target: int, *, spare: bytes, pause: Callable[[], None] = lambda: None
    ) -> None:
        self._target = target
        self._spare = spare
        self._pause = pause
        self._lock = threading.Lock()
        self._next: Cut | None = None
        self._flows = threading.Event()
        self._flows.set()
        self._connections: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        self.is_away = False
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def arm(self, cut: Cut) -> None:
        """Cut off the next request."""
        with self._lock:
            self._next = cut

    def hold(self) -> None:
        """Forward nothing until ``release``; connections stay open, and new ones are accepted."""
        self._flows.clear()

    def release(self) -> None:
        """Forward what was held, and all that follows."""
        self._flows.set()

    def cut_all(self) -> None:
        """End all connections now."""
        with self._lock:
            ended, self._connections = self._connections, []
        for pair in ended:
            _end(*pair)

    def close(self) -> None:
        """End all connections, and accept no more."""
        # shutdown wakes the thread that accepts; close alone does not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_away:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), PATIENCE)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._connections.append((client, server))
            threading.Thread(
                target=self._serve, args=(client, server), name="proxied", daemon=True
            ).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                self._flows.wait()
                if server in ready:
                    if not (reply := server.recv(_CHUNK)):
                        break
                    client.sendall(reply)
                if client in ready:
                    if not (request := client.recv(_CHUNK)):
                        break
                    if self._spare in request or (cut := self._take()) is None:
                        server.sendall(request)
                    elif not self._cut(cut, request, client, server):
                        break
        _end(client, server)

    def _take(self) -> Cut | None:
        with self._lock:
            cut, self._next = self._next, None
            self.cuts += cut is not None
            return cut

    def _cut(self, cut: Cut, request: bytes, client: socket.socket, server: socket.socket) -> bool:
        """Treat a request as *cut* says; return whether the connection goes on."""
        if cut is Cut.HALF:
            server.sendall(request[: len(request) // 2])
        elif cut is Cut.AFTER:
            server.sendall(request)
        elif cut in {Cut.REPLY, Cut.HELD}:
            server.sendall(request)
            server.settimeout(PATIENCE)
            server.recv(_CHUNK)
            if cut is Cut.HELD:
                self._pause()
        elif cut is Cut.SILENCE:
            # Until the client gives up.
            while client.recv(_CHUNK):
                pass
        elif cut is Cut.FREEZE:
            half = len(request) // 2
            server.sendall(request[:half])
            self._pause()
            server.sendall(request[half:])
        return cut is Cut.FREEZE


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
