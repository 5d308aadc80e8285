"""Find and signal the processes of one session, which is what a shell and all it started are.

A process that made a session of its own (``setsid``) is found by a variable of its environment;
that works on Linux alone.
"""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def processes_of(session: int) -> set[int]:
    """Return the ids of the living processes of *session*."""
    return {pid for pid in _all_ids() if _session_of(pid) == session and _is_alive(pid)}


def processes_with(variable: str) -> set[int]:
    """Return the ids of the living processes that have *variable*, NAME=VALUE, from their start."""
    wanted = variable.encode()
    found: set[int] = set()
    for pid in _all_ids():
        with suppress(OSError):  # it has ended, or is somebody else's
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.add(pid)
    return {pid for pid in found if _is_alive(pid)}


def send(signal_number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to those of *pids* that are still there and ours."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal_number)


def _all_ids() -> list[int]:
    if _PROC.is_dir():
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, check=False, timeout=5)
    return [int(word) for word in listed.stdout.split()]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _is_alive(pid: int) -> bool:
    """Whether it runs, and is not only waiting for its parent to notice that it has ended."""
    if not _PROC.is_dir():
        return True
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
