"""Serve a few small pages from a thread of their own: health checks and metrics.

An orchestrator asks whether a process still lives. The answer must not depend on the event loop
that it asks about, nor on a package that only some installations have.
"""

import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, cast

from treefold.core.errors import UsageError

_MOST: Final = 32  # connections at once; more are closed
_POLL: Final = 0.05  # seconds until a server that is closed notices it


@dataclass(frozen=True, slots=True)
class ProbePage:
    """The response to a request."""

    text: str
    status: int = 200
    kind: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], ProbePage]]  # by path; each function is called in a thread


class ProbeServer:
    """Serves pages until it is closed.

    Args:
        host: the address to listen on.
        port: 0 for any free one.
        patience: seconds that a client may take to send its request, or to read the page.

    Attributes:
        url: where it serves.

    Raises:
        UsageError: the address is not available.
    """

    def __init__(self, host: str, port: int, pages: Pages, *, patience: float = 5.0) -> None:
        try:
            self._server = _Server(host, port, pages, patience)
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error}") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL,), name="treefold probes", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Serve no more pages."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Clients that connect at the same time are accepted, or refused, in their order.
    request_queue_size = 128
    # Closing does not wait for slow clients.
    block_on_close = False

    def __init__(self, host: str, port: int, pages: Pages, patience: float) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages = pages
        self._patience = patience
        self._free = threading.Semaphore(_MOST)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(self._patience)
            self.finish_request(request, client_address)
        except OSError:
            # The client has gone away, or was too slow.
            pass
        finally:
            # In this order: a client whose connection was closed finds a free place at once.
            self._free.release()
            self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Send the page at the path of the request."""
        pages = cast("_Server", self.server).pages
        make = pages.get(self.path.partition("?")[0])
        if make is None:
            known = ", ".join(pages)
            page = ProbePage(f"there is no page {self.path}; there are {known}\n", 404)
        else:
            page = make()
        body = page.text.encode()
        self.send_response(page.status)
        self.send_header("content-type", page.kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - as above

    def version_string(self) -> str:
        return "treefold"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""
