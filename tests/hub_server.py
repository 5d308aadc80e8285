"""A Hugging Face hub on loopback, with one small file, that can break off or have other bytes."""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from treefold.models.local.catalogue import HubFile, Weights

# The hub's library writes in blocks of 10 MiB: a download that breaks off in the second keeps one.
BLOCK = 10 * 1024 * 1024
ENDLESS = 20 * BLOCK
CONTENT = b"GGUF" + bytes(range(256)) * 4096 * 11
REPOSITORY = "someone/Tiny-GGUF"
COMMIT = "c0ffee" + "0" * 34
_PATH = f"/{REPOSITORY}/resolve/main/tiny.gguf"


@dataclass(slots=True)
class Hub:
    """What the server has, and what it was asked.

    Attributes:
        content: the file.
        etag: what the hub says its SHA-256 is.
        size: what the hub says its size is.
        cuts: how many of the next downloads break off after BLOCK bytes and a bit.
        endless: whether downloads do not end, at least not before ENDLESS bytes.
        missing: whether there is no such file.
        requests: the method, path and range of each request.
        tokens: the credentials that were sent to each path.
    """

    url: str = ""
    content: bytes = CONTENT
    etag: str = hashlib.sha256(CONTENT).hexdigest()
    size: int = len(CONTENT)
    cuts: int = 0
    endless: bool = False
    missing: bool = False
    requests: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def ranges(self) -> list[str]:
        """The range of each download."""
        return [asked for method, _, asked in self.requests if method == "GET"]

    def weights(self, content: bytes = CONTENT) -> Weights:
        """Return what is expected to be here: a file with *content*."""
        sha256 = hashlib.sha256(content).hexdigest()
        source = HubFile(REPOSITORY, "tiny.gguf", endpoint=self.url)
        return Weights(name="tiny", source=source, size=len(content), sha256=sha256)


def _send_endlessly(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)  # without a length, it goes on until the connection is closed
    handler.end_headers()
    with suppress(ConnectionError):
        for _ in range(ENDLESS // len(CONTENT) + 1):
            handler.wfile.write(CONTENT)


@contextmanager
def serving_hub() -> Generator[Hub]:
    """Serve a hub whose large files, as those of the real one, are at another address."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            hub.requests.append(("HEAD", self.path, ""))
            if hub.missing or self.path != _PATH:
                self._reply(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
                return
            headers = {"X-Repo-Commit": COMMIT, "X-Linked-Size": str(hub.size)}
            headers |= {"X-Linked-Etag": f'"{hub.etag}"', "ETag": '"of-the-redirect"'}
            self._reply(302, headers | {"Location": cdn})

        def do_GET(self) -> None:
            if self.path == _PATH:
                self._reply(302, {"Location": cdn})
                return
            asked = self.headers.get("Range", "")
            hub.requests.append(("GET", self.path, asked))
            if hub.endless:
                _send_endlessly(self)
                return
            begin = int(asked.removeprefix("bytes=").removesuffix("-") or 0)
            data = hub.content[begin:]
            size = len(hub.content)
            headers = {"Content-Range": f"bytes {begin}-{size - 1}/{size}"} if asked else {}
            self._reply(206 if asked else 200, headers, len(data))
            if hub.cuts:
                hub.cuts -= 1
                data = data[: BLOCK + 1000]
                self.close_connection = True
            with suppress(ConnectionError):  # of a client that was interrupted
                self.wfile.write(data)

        def _reply(self, status: int, headers: dict[str, str], length: int = 0) -> None:
            self.send_response(status)
            hub.tokens[self.path] = self.headers.get("Authorization", "")
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(length))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        port = server.server_address[1]
        hub.url, cdn = f"http://127.0.0.1:{port}", f"http://localhost:{port}/cdn/tiny"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
