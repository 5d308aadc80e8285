"""A small program that runs a shell as its child, and exits when no descendant of it is left.

It is a child subreaper: a process whose parent ends becomes its child, whatever the session,
environment or process group of that process. So every process that the shell ever started is its
descendant, and is killed when the shell ends, on SIGTERM, or when the library's process has died.

It is run as a script by the path of this file: ``python -I -S supervisor.py
STATUS_FD PROGRAM [ARGUMENT...]``. The environment of PROGRAM arrives on standard input, which
PROGRAM then inherits: its size in ten digits, then NAME=VALUE pairs separated by NUL. Events are
reported on STATUS_FD in records that end with NUL: ``shell PID``, ``ended CODE``.
"""

import ctypes
import os
import select
import sys
import time

# Each shell waits for these imports; signal, typing and contextlib would double the time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIZE = 10  # digits of the size of the environment
_KILL_TIMEOUT = 4.0  # seconds within which killed processes must be gone
_TICK = 0.01


def main() -> None:
    """Run the program, and leave none of its processes behind."""
    status, command = int(sys.argv[1]), sys.argv[2:]
    env = _read_environment()
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A command may have stopped this process when the library's dies, and it has to do its work.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    signals, writer = os.pipe()
    for end in (signals, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, _ignore)  # they arrive through the wakeup descriptor
    shell = os.fork()
    if shell == 0:
        _exec(command, env, libc)
    os.chdir("/")
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number > 2 and number not in {status, signals, writer}:
            try:
                os.close(number)
            except OSError:
                continue  # the descriptor of the listing itself
    os.write(status, b"shell %d\0" % shell)
    code = _wait_for_end(shell, signals)
    code = _kill_descendants(shell, signals, code)
    try:
        os.write(status, b"ended %d\0" % code)
    finally:  # even if the library's process has died
        os._exit(0)


def _read_environment() -> dict[bytes, bytes]:
    pairs = _read(int(_read(_SIZE))).split(b"\0")
    return {name: value for name, _, value in (pair.partition(b"=") for pair in pairs) if name}


def _read(size: int) -> bytes:
    """Read exactly *size* bytes from standard input, and none of what follows."""
    data = b""
    while len(data) < size:
        chunk = os.read(0, size - len(data))
        if not chunk:
            sys.exit(1)
        data += chunk
    return data


def _exec(command: list[str], env: dict[bytes, bytes], libc: ctypes.CDLL) -> None:
    try:
        os.setsid()
        # The shell must not survive if this process is killed.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Python ignores these two signals, and a program inherits that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve(command[0], command, env)
    finally:
        os._exit(127)


def _wait_for_end(shell: int, signals: int) -> int | None:
    """Wait until everything must be killed; return the exit code of the shell, if it ended."""
    poll = select.poll()
    poll.register(0, 0)  # only hang-ups: the library closed its end, or has died
    poll.register(signals, select.POLLIN)
    while True:
        events = dict(poll.poll())
        if 0 in events or signal.SIGTERM in _read_signals(signals):
            return None
        while ended := _reap():
            if ended[0] == shell:
                return os.waitstatus_to_exitcode(ended[1])


def _kill_descendants(shell: int, signals: int, code: int | None) -> int:
    """Kill until no child is left; return the exit code of the shell.

    The children of a killed process become children of this one, so killing children is enough.
    """
    deadline = time.monotonic() + _KILL_TIMEOUT
    while time.monotonic() < deadline:
        try:
            ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if ended[0] == shell:
            code = os.waitstatus_to_exitcode(ended[1])
        elif ended[0] == 0:
            for child in _children():
                _kill(child)
            select.select([signals], [], [], _TICK)
            _read_signals(signals)
    return -signal.SIGKILL if code is None else code


def _reap() -> tuple[int, int] | None:
    try:
        ended = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return ended if ended[0] else None


def _read_signals(signals: int) -> bytes:
    try:
        return os.read(signals, 4096)
    except BlockingIOError:
        return b""


def _children() -> list[int]:
    with open("/proc/thread-self/children", "rb") as listed:
        return [int(word) for word in listed.read().split()]


def _ignore(number: int, frame: object) -> None:
    pass


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return  # it has ended, or belongs to another user


if __name__ == "__main__":
    main()
