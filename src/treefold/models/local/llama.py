"""llama.cpp's server in this process, on a port that only this machine reaches.

What xllamacpp 2026.10 leaves to us, each found by experiment:

- It stops a server when the last reference goes, holding the interpreter, and waits for every
  open request, which may be waiting for the interpreter. So requests are ended first.
- To leave a running server to the end of the process is a segmentation fault, so all are closed
  at exit; a forked process has none of its threads, so there it is neither closed nor started.
- It reads a prompt in pieces of ``n_batch`` and looks for cancellation only in between.
"""

import atexit
import contextlib
import ctypes
import importlib
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from treefold.core.errors import InvalidValueError, UsageError
from treefold.models.local.connections import hang_up
from treefold.models.local.gguf import read_head

_HOST = "127.0.0.1"
_SILENT, _ERRORS = -1, 1
_PROMPT_PIECE = 64  # tokens; half a second of a small model on one core
_PROMPT_CACHE = 512  # MiB
_SLOW_READER = 10  # seconds until who does not read its answer loses it

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


class LlamaServer:
    """A model that is loaded and answers; it is closed at exit if nobody does it before.

    Attributes:
        base_url: where the OpenAI-compatible routes are.
        api_key: the bearer token they ask for, so that no other user and no web page uses them.
        context: how many tokens a request and its answer may have together.
    """

    def __init__(self, handle: Any, api_key: str, context: int) -> None:
        self._handle: Any = handle  # xllamacpp.Server; without one it is closed
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
    ) -> "LlamaServer":
        """Load the model at *path* and serve it; this blocks until it answers.

        Args:
            path: a GGUF file.
            threads: that compute; otherwise one less than there are cores.
            context: tokens for each request, at most what the model was trained for.
            parallel: how many requests are computed at once; others wait.
        """
        return _start(_settings(path, threads, context, parallel))

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._handle is None

    def close(self) -> None:
        """End open requests, stop the server and free its memory. Closing again does nothing."""
        with _lock:
            if self._handle is None:
                return
            hang_up(int(self._address.rpartition(":")[2]))
            _running.discard(self)
            self._handle = None  # the last reference: this waits for its threads

    def _forget(self) -> None:
        """Keep what is left of the server after a fork from ever being closed."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._handle))
        self._handle = None


def shared_server(
    path: Path, *, threads: int | None = None, context: int = 8192, parallel: int = 1
) -> LlamaServer:
    """Return the server for *path* with these settings, started by whoever asks first."""
    settings = _settings(path, threads, context, parallel)
    with _lock:
        server = _shared.get(settings)
        if server is None or server.closed:
            server = _shared[settings] = _start(settings)
        return server


def spare_threads() -> int:
    """Return how many threads may compute so that one core is left for everything else."""
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, cores - 1)


def _settings(path: Path, threads: int | None, context: int, parallel: int) -> _Settings:
    path = Path(path).expanduser().absolute()
    for name, value in [("threads", threads), ("context", context), ("parallel", parallel)]:
        if value is not None and value < 1:
            raise InvalidValueError(f"{name}={value} is too few to run {path.name}; give 1 or more")
    trained = read_head(path).trained_context
    threads = threads or spare_threads()
    return _Settings(path, threads, min(context, trained or context), parallel)


def _start(settings: _Settings) -> LlamaServer:
    if _forked:
        raise UsageError(
            f"{settings.path.name} cannot run here: this process was forked from one where a model "
            "ran; start it with multiprocessing's 'spawn'"
        )
    xllamacpp = _xllamacpp()
    key = secrets.token_urlsafe()
    with _lock:
        try:
            handle = xllamacpp.Server(_params(xllamacpp, settings, key))
        except (RuntimeError, ValueError) as error:
            raise InvalidValueError(
                f"llama.cpp cannot run {settings.path}: {_reason(settings.path)}; "
                "give another GGUF file or a smaller context"
            ) from error
        server = LlamaServer(handle, key, settings.context)
        _running.add(server)
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
    params.n_ctx = settings.context * settings.parallel
    params.n_parallel = settings.parallel
    params.n_batch = params.n_ubatch = _PROMPT_PIECE
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.cache_ram_mib = _PROMPT_CACHE
    params.timeout_write = _SLOW_READER
    params.sse_ping_interval = -1  # closing would wait for the next one
    params.verbosity = _SILENT
    return params


def _xllamacpp() -> ModuleType:
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise UsageError(
            f"a local model needs xllamacpp, which cannot be imported ({error}): "
            "pip install 'xllamacpp>=2026.10'"
        ) from error


def _reason(path: Path) -> str:
    """Let another process fail in the same way, where llama.cpp may write to stderr."""
    code = (
        "import sys, xllamacpp\n"
        "params = xllamacpp.CommonParams()\n"
        f"params.model.path, params.verbosity, params.n_ctx = sys.argv[1], {_ERRORS}, 64\n"
        "xllamacpp.Server(params)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
        for line in done.stderr.splitlines():
            if " E " in line:  # time, level, function: message
                return line.partition(" E ")[2].partition(": ")[2].strip()
    return "it does not say why"


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
        server._forget()  # pyright: ignore[reportPrivateUsage]
    _running.clear()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
