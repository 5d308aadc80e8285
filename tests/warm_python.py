"""Starts Python programs quickly: a process that has imported what most need forks one for each.

Each is a process of its own with its own folder, environment, files and terminal, and waits for
its threads and does what is to be done at exit; only the time is saved that it takes to import
modules and to take them apart, which is most of a short life. What depends on those, on options of
Python or on who started it is tested with processes from scratch.

What starts programs by a command line of its own (``subprocess``, an MCP client, a shell) is given
``command(...)``: a small program that has one forked with its files, and stands for it.

One such process is there for all workers of a test session: the one that starts them opens it, and
they find its address in their environment. It imports nothing before it is asked for the first
program.
"""

import asyncio
import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import warnings
from collections.abc import Container, Mapping
from contextlib import suppress
from ctypes import CDLL, c_size_t, c_void_p
from fcntl import ioctl
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, Final

PATIENCE: Final = 60  # seconds

_ADDRESS: Final = "WARM_PYTHON"  # the variable that has it
_EARLY: Final = (
    "aiohttp", "anyio._backends._asyncio", "anyio.streams.tls", "encodings.idna", "httpcore2",
    "httpx", "mcp", "openai", "rich.live", "truststore", "uvicorn.lifespan.on",
)  # fmt: skip
_LARGE, _COLLAPSE = 1 << 21, 25  # the bytes of a large page, and what Linux calls MADV_COLLAPSE
_LARGEST: Final = 1 << 17  # what a program is told, in bytes
_LAUNCHER: Final = Path(__file__).with_name("warm_launcher.py")


class Program:
    """A program that was started."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.pid = int(self._hear(PATIENCE))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, if it has."""
        with suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for its end, and return its exit code, or minus the signal that ended it."""
        if self.returncode is None:
            self.returncode = int(self._hear(timeout))
            self._told.close()
        return self.returncode

    async def exit_code(self) -> int:
        """Wait for its end without standing in the way of others."""
        return await asyncio.to_thread(self.wait)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def _hear(self, timeout: float) -> bytes:
        if not select.select([self._told], [], [], timeout)[0]:
            raise TimeoutError(f"not in {timeout} s")
        return self._told.recv(100)


def start(
    *args: str,
    files: tuple[int, int, int],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    in_terminal: bool = False,
) -> Program:
    """Start ``python *args*``, a module, a file or code; *files* are what it reads and writes.

    With *in_terminal*, the first of them is the terminal of a session of its own.
    """
    call = {
        "args": args,
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "in_terminal": in_terminal,
    }
    warm = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    warm.connect(os.environ[_ADDRESS])
    socket.send_fds(warm, [json.dumps(call).encode()], files)
    return Program(warm)


def run(
    *args: str, said: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python *args*`` to its end, with *said* on its standard input."""
    reading, writing = os.pipe()
    with TemporaryFile() as out, TemporaryFile() as err:
        with open(reading, "rb") as stdin, open(writing, "wb") as mouth:
            files = (stdin.fileno(), out.fileno(), err.fileno())
            program = start(*args, files=files, env=env, cwd=cwd)
            stdin.close()
            with suppress(BrokenPipeError):
                mouth.write(said.encode())
                mouth.close()
        try:
            program.wait()
        finally:
            program.kill()
        printed = [os.pread(file.fileno(), 1 << 30, 0).decode() for file in (out, err)]
    return subprocess.CompletedProcess(args, program.wait(), *printed)


class Talk:
    """A program that is talked to: ``stdin`` and ``stdout`` are the other ends of its own."""

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        (reading, speaking), (hearing, writing) = os.pipe(), os.pipe()
        self.stdin = open(speaking, "w", encoding="utf-8")  # noqa: SIM115 - end closes them
        self.stdout = open(hearing, encoding="utf-8")  # noqa: SIM115
        self._complaints = TemporaryFile()  # noqa: SIM115
        self._last_words = ""
        try:
            files = (reading, writing, self._complaints.fileno())
            self.program = start(*args, files=files, env=env, cwd=cwd)
        finally:
            os.close(reading)
            os.close(writing)

    @property
    def complaints(self) -> str:
        """What it has written to its standard error."""
        return os.pread(self._complaints.fileno(), 1 << 30, 0).decode()

    def tell(self, line: str) -> str:
        """Say *line*, and return the line that it prints then."""
        self.stdin.write(f"{line}\n")
        self.stdin.flush()
        return self.readline()

    def readline(self) -> str:
        """Return the next line it prints; if none comes in time, it is ended."""
        watchdog = threading.Timer(self._patience, self.program.kill)
        watchdog.start()
        try:
            return self.stdout.readline()
        finally:
            watchdog.cancel()

    def end(self) -> tuple[int, str]:
        """Say no more, and return how it ended and what it complained of."""
        if not self.stdin.closed:
            with suppress(BrokenPipeError):
                self.stdin.close()
            self.program.wait()
            self.stdout.close()
            self._last_words = self.complaints
            self._complaints.close()
        return self.program.wait(), self._last_words

    def kill(self) -> tuple[int, str]:
        """End it at once; return what ``end`` does."""
        self.program.kill()
        return self.end()


def command(*args: str) -> list[str]:
    """Return a command line that does quickly what ``python *args*`` does.

    Signals reach the program, its exit status is that of the command, and it is killed when the
    command is. Only what looks closely can tell: the program is not a child of the command.
    """
    return [sys.executable, "-I", "-S", str(_LAUNCHER), os.environ[_ADDRESS], *args]


class Parent:
    """The process that forks; it ends when it is closed, or when who opened it has gone."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        os.environ[_ADDRESS] = address = f"{self._folder.name}/warm"
        self._line, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(address)
            door.listen(100)
            inherited = [theirs.fileno(), door.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, __file__, *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
            )

    def close(self) -> None:
        """Start no more programs."""
        del os.environ[_ADDRESS]
        self._line.close()
        self._process.wait(PATIENCE)
        self._folder.cleanup()


# --- the other side


def import_treefold() -> None:
    """Import all of it, so that a program that is forked has nothing of it to import."""
    for module in walk_packages(import_module("treefold").__path__, "treefold."):
        if module.name != "treefold.__main__":
            import_module(module.name)
    gc.collect()
    gc.freeze()  # or every end would look at all that was imported


class _Running:
    """A program that was forked, and the socket of its caller, who is told how it ends."""

    def __init__(self, pid: int, caller: socket.socket) -> None:
        self.caller = caller
        self.end = os.pidfd_open(pid)  # which can be read when it has ended
        self._pid = pid
        self._tell(pid)

    def goes_on(self, ready: Container[Any]) -> bool:
        """Tell how it ended, if it has; kill it if the caller has gone."""
        if self.end not in ready:
            if self.caller not in ready:
                return True
            self.kill()
        _, status = os.waitpid(self._pid, 0)
        self._tell(os.waitstatus_to_exitcode(status))
        self.close()
        return False

    def kill(self) -> None:
        signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def close(self) -> None:
        os.close(self.end)
        self.caller.close()

    def _tell(self, what: int) -> None:
        with suppress(OSError):  # the caller has gone
            self.caller.send(str(what).encode())


def _serve(line: socket.socket, door: socket.socket) -> Mapping[str, Any]:
    """Fork a child for each call that comes, and return in that one; else never."""
    running: list[_Running] = []
    while True:
        _wait_for_call(line, door, running)
        caller, _ = door.accept()
        told, files, _, _ = socket.recv_fds(caller, _LARGEST, 3)
        if not told:
            caller.close()
            continue
        _import_early()
        if child := os.fork():
            running.append(_Running(child, caller))
            for file in files:
                os.close(file)
            continue
        for one in [*running, line, door, caller]:
            one.close()
        call = json.loads(told)
        _take(files, in_terminal=call["in_terminal"])
        return call


def _wait_for_call(line: socket.socket, door: socket.socket, running: list[_Running]) -> None:
    """Look after what is running until somebody is at the *door*; end when the *line* does."""
    ready: list[Any] = []
    while door not in ready:
        ends = [end for one in running for end in (one.end, one.caller)]
        ready, _, _ = select.select([line, door, *ends], [], [])
        if line in ready:
            for one in running:
                one.kill()
            os._exit(0)
        running[:] = [one for one in running if one.goes_on(ready)]


@cache
def _import_early() -> None:
    for early in _EARLY:
        import_module(early)
    import_treefold()
    _join_pages()


def _join_pages() -> None:
    """Have large pages where the system can: a fork copies an entry for each page that there is."""
    maps = Path("/proc/self/maps")
    advise = getattr(CDLL(None), "madvise", None)
    if advise is None or not maps.exists():
        return
    for line in maps.read_text().splitlines():
        place, rights, _, _, file, *name = line.split()
        if (rights, file) == ("rw-p", "0") and name in ([], ["[heap]"]):
            first, end = (int(address, 16) for address in place.split("-"))
            for page in range(-(-first // _LARGE) * _LARGE, end - _LARGE + 1, _LARGE):
                advise(c_void_p(page), c_size_t(_LARGE), _COLLAPSE)  # nothing is lost if it cannot


def _take(files: list[int], *, in_terminal: bool) -> None:
    """Have *files* as the standard ones."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in {*files} - {0, 1, 2}:
        os.close(file)
    if in_terminal:
        os.setsid()
        ioctl(0, termios.TIOCSCTTY, 0)


def _become(call: Mapping[str, Any]) -> None:
    """Be the program, as Python makes it be one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(call["env"])
    os.chdir(call["cwd"])
    coding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding=coding, closefd=False)  # noqa: SIM115 - they end with us
    sys.stdout = open(1, "w", encoding=coding, closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, encoding=coding, errors="backslashreplace", closefd=False
    )
    more = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    args = call["args"]
    if args[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del args[:2]
    match args:
        case ["-m", module, *rest]:
            sys.argv, sys.path[:1] = [module, *rest], [call["cwd"], *more]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv, sys.path[:1] = ["-c", *rest], ["", *more]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [file, *rest]:
            sys.argv, sys.path[:1] = [file, *rest], [str(Path(file).parent.absolute()), *more]
            runpy.run_path(file, run_name="__main__")
        case unknown:
            raise ValueError(unknown)


class _End:
    """Ends a program whose exit code is known without taking apart all that was imported."""

    code: int | None = None

    def come(self) -> None:
        """Be the last that is done at exit."""
        if self.code is not None:
            gc.collect()  # what is complained of then is seen
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


if __name__ == "__main__":
    end = _End()
    atexit.register(end.come)
    with socket.socket(fileno=int(sys.argv[1])) as line:
        call = _serve(line, socket.socket(fileno=int(sys.argv[2])))
    try:
        _become(call)
        end.code = 0
    except SystemExit as left:
        end.code = left.code if isinstance(left.code, int) else int(left.code is not None)
        raise
