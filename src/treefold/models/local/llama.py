"""llama.cpp's server in this process, on a port that only this machine can reach.

Behaviour of xllamacpp 2026.10 that this module works around, each found by experiment:

- It stops a server when the last reference is dropped, while holding the GIL, and waits for every
  open request until its client disconnects, for which a client in this process needs the GIL. So
  the listening socket is shut down first, then every connection; xllamacpp does not expose its
  sockets, so they are found among the open files of the process.
- A server that still runs when the process ends causes a segmentation fault, so all are closed at
  exit. A forked process has none of its threads, so there a server is neither closed nor started.
- It returns from the constructor before the thread of its task queue runs, and a server that is
  stopped before that never ends. So starting one waits for an answer that comes from the queue.
- It processes a prompt in batches of ``n_batch`` and checks for cancellation only between them.
"""

import atexit
import contextlib
import ctypes
import os
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import ModuleType
from typing import Any

from treefold.core.errors import InvalidValueError, UsageError
from treefold.models.local.gguf import read_metadata
from treefold.models.wire_model import required_package

XLLAMACPP = "xllamacpp>=2026.10"
_HOST = "127.0.0.1"
_SILENT, _ERRORS = -1, 1
_BATCH = 64  # tokens; half a second for a small model on one core
_PROMPT_CACHE = 512  # MiB
_START_TIMEOUT = 60.0  # seconds until the queue of a loaded model runs, on a busy machine
_EXPLAINED = 120.0  # seconds until another process has loaded it, on a busy machine
_WRITE_TIMEOUT = 10  # seconds until the connection of a client that does not read is closed
_SHUTDOWN_TIMEOUT = 10.0  # seconds; llama.cpp checks its connections once a second

_lock = threading.RLock()
_forked = False  # from a process where llama.cpp ran
_running: set["LlamaServer"] = set()
_shared: dict["_Settings", "LlamaServer"] = {}


@dataclass(frozen=True, slots=True)
class _Settings:
    path: Path
    threads: int
    context: int  # of each request
    parallel: int
    chat_template: str | None


class LlamaServer:
    """A loaded model that serves requests; it is closed at exit at the latest.

    Attributes:
        base_url: of the OpenAI-compatible routes.
        api_key: the bearer token that they require, so that no other user and no web page can use
            them.
        context: the maximum number of tokens of a request and its response together.
    """

    def __init__(self, handle: Any, api_key: str, context: int) -> None:
        self._handle: Any = handle  # xllamacpp.Server; None when closed
        self._address: str = handle.listening_address
        self.base_url = f"{self._address}/v1"
        self.api_key = api_key
        self.context = context

    @classmethod
    def start(
        cls,
        path: Path,
        *,
        threads: int | None = None,
        context: int = 8192,
        parallel: int = 1,
        chat_template: str | None = None,
    ) -> "LlamaServer":
        """Load the model at *path* and serve it; blocks until the server is ready.

        Args:
            path: a GGUF file.
            threads: the number of computing threads; by default one less than there are cores.
            context: tokens for each request, limited to what the model was trained for.
            parallel: how many requests are computed concurrently; others wait.
            chat_template: a Jinja template; by default the one in the file.
        """
        return _start(_settings(path, threads, context, parallel, chat_template))

    @property
    def closed(self) -> bool:
        """Whether the server has been closed."""
        return self._handle is None

    def wait_until_serving(self) -> None:
        """Wait until the server processes its queue of tasks.

        xllamacpp returns as soon as the model is loaded. A server that is closed before the thread
        of its queue has begun is stopped too early, and closing waits for that thread for ever.
        """
        address = self._address.removeprefix("http://")
        connection = HTTPConnection(address, timeout=_START_TIMEOUT)
        try:
            # The status of the slots is itself a task in that queue.
            connection.request("GET", "/slots", headers={"Authorization": f"Bearer {self.api_key}"})
            connection.getresponse().read()
        except (HTTPException, OSError):
            pass  # the first request says what is wrong
        finally:
            connection.close()

    def close(self) -> None:
        """Abort open requests, stop the server and free its memory. Idempotent."""
        with _lock:
            if self._handle is None:
                return
            _shut_down_sockets(int(self._address.rpartition(":")[2]))
            _running.discard(self)
            self._handle = None  # drops the last reference, which waits for its threads

    def _leak(self) -> None:
        """Leak the server's handle after a fork, so that it is never closed."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._handle))
        self._handle = None


def shared_server(
    path: Path,
    *,
    threads: int | None = None,
    context: int = 8192,
    parallel: int = 1,
    chat_template: str | None = None,
) -> LlamaServer:
    """Return the server for *path* with these settings; the first call starts it."""
    settings = _settings(path, threads, context, parallel, chat_template)
    with _lock:
        server = _shared.get(settings)
        if server is None or server.closed:
            server = _shared[settings] = _start(settings)
        return server


def default_threads() -> int:
    """Return the number of threads that leaves one core for everything else."""
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, cores - 1)


def _settings(
    path: Path, threads: int | None, context: int, parallel: int, chat_template: str | None
) -> _Settings:
    path = Path(path).expanduser().absolute()
    for name, value in [("threads", threads), ("context", context), ("parallel", parallel)]:
        if value is not None and value < 1:
            raise InvalidValueError(f"{name} must be at least 1 to run {path.name}, got {value}")
    trained = read_metadata(path).trained_context
    threads = threads or default_threads()
    return _Settings(path, threads, min(context, trained or context), parallel, chat_template)


def _start(settings: _Settings) -> LlamaServer:
    if _forked:
        raise UsageError(
            f"{settings.path.name} cannot run here: this process was forked from one that ran a "
            "model; start it with multiprocessing's 'spawn'"
        )
    xllamacpp = required_package("xllamacpp", XLLAMACPP, "local", "a local model")
    key = secrets.token_urlsafe()
    with _lock:
        try:
            handle = xllamacpp.Server(_params(xllamacpp, settings, key))
        except (RuntimeError, ValueError) as error:
            template = " or chat_template" if settings.chat_template else ""
            raise InvalidValueError(
                f"llama.cpp cannot run {settings.path}: {_load_error(settings)}; "
                f"use another GGUF file{template} or a smaller context"
            ) from error
        server = LlamaServer(handle, key, settings.context)
        _running.add(server)
        server.wait_until_serving()
        return server


def _params(xllamacpp: ModuleType, settings: _Settings, key: str) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(settings.path)
    params.model_alias = {settings.path.stem}
    params.hostnames = [_HOST]
    params.port = 0
    params.api_keys = [key]
    params.cors_origins = ""
    params.ui = False
    params.use_jinja = True  # for templates with tools
    params.chat_template = settings.chat_template or ""
    params.n_ctx = settings.context * settings.parallel
    params.n_parallel = settings.parallel
    params.n_batch = params.n_ubatch = _BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.cache_ram_mib = _PROMPT_CACHE
    params.timeout_write = _WRITE_TIMEOUT
    params.sse_ping_interval = -1  # closing would wait for the next ping
    params.verbosity = _SILENT
    return params


def _load_error(settings: _Settings) -> str:
    """Return llama.cpp's error for a file and a chat template.

    It writes the error to stderr, so the file is loaded again in another process to capture it.
    """
    code = (
        "import sys, xllamacpp\n"
        "params = xllamacpp.CommonParams()\n"
        f"params.verbosity, params.n_ctx, params.use_jinja = {_ERRORS}, 64, True\n"
        "params.model.path, params.chat_template = sys.argv[1:]\n"
        "xllamacpp.Server(params)"
    )
    # -P: it does not import from the current folder.
    python = [sys.executable, "-P", "-c", code]
    command = [*python, str(settings.path), settings.chat_template or ""]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_EXPLAINED,
            check=False,
        )
        for line in done.stderr.splitlines():
            if " E " in line:  # time, level, function: message
                return line.partition(" E ")[2].partition(": ")[2].strip()
    return "no reason given"


def _shut_down_sockets(port: int) -> None:
    """Have the server at *port* accept no more connections and close the open ones.

    Does nothing on systems that do not list the open files of a process (Windows).
    """
    deadline = time.monotonic() + _SHUTDOWN_TIMEOUT
    for number, listener in _sockets(port, listening=True):
        _stop_accepting(number, listener, deadline)
    while time.monotonic() < deadline:
        found = 0
        for _, connection in _sockets(port, listening=False):
            found += 1
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if not found:
            return
        time.sleep(0.01)


def _stop_accepting(number: int, listener: socket.socket, deadline: float) -> None:
    """Shut down *listener* and wait until the server has closed its file descriptor *number*.

    The server closes it when it fails to accept. Until then it may have accepted a connection that
    is not among the open files yet.
    """
    inode = os.fstat(listener.fileno()).st_ino
    # fstat() raises when the descriptor is closed, unless another file has its number by then.
    # shutdown() raises where a listening socket cannot be shut down (macOS).
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
        while os.fstat(number).st_ino == inode and time.monotonic() < deadline:
            time.sleep(0.01)


def _sockets(port: int, *, listening: bool) -> Iterator[tuple[int, socket.socket]]:
    """Yield the listening socket at *port*, or the server's ends of the connections to it.

    Each comes with its file descriptor; the socket itself is a duplicate that is closed afterwards.
    """
    folder = Path("/dev/fd")
    for name in os.listdir(folder) if folder.is_dir() else ():
        # The file may be closed by now, or be a socket that has no peer.
        with contextlib.suppress(OSError):
            number = int(name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as found:
                if found.getsockname() != (_HOST, port):
                    continue
                if listening:
                    wanted = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                else:
                    wanted = found.getpeername()
                if wanted:
                    yield number, found


@atexit.register
def close_all() -> None:
    """Close every server of this process."""
    for server in list(_running):
        server.close()


def _after_fork() -> None:
    global _lock, _forked
    _lock = threading.RLock()  # another thread may have held the old one
    _forked = _forked or "xllamacpp" in sys.modules
    for server in _running:
        server._leak()  # pyright: ignore[reportPrivateUsage]
    _running.clear()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
