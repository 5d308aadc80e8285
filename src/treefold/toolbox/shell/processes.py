"""Find and signal the processes that a shell or server has started.

The descendants of a child subreaper, which needs Linux, are all the processes that it ever started.
Without one, processes are found by their session or by a variable in their environment.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_MAX_SCANS: Final = 5


def has_child_lists() -> bool:
    """Whether `descendants_of` works on this system."""
    return (_PROC / "thread-self" / "children").exists()


def descendants_of(pid: int, excluding: Set[int] = frozenset()) -> set[int]:
    """Return the ids of the living descendants of *pid*, without *excluding* and their descendants.

    It reads the kernel's lists of children, so the cost does not depend on how many processes the
    system has.
    """
    found = _scan_descendants(pid, excluding)
    # A process that ends during a scan may hide its siblings, and its children get a new parent.
    for _ in range(_MAX_SCANS):
        before, found = found, _scan_descendants(pid, excluding)
        if found == before:
            break
    return {pid for pid in found if _is_alive(pid)}


def processes_of(session: int) -> set[int]:
    """Return the ids of the living processes of *session*."""
    return {pid for pid in _all_pids() if _session_of(pid) == session and _is_alive(pid)}


def processes_with(variable: str) -> set[int]:
    """Return the ids of the living processes that have *variable*, NAME=VALUE, from their start."""
    wanted = variable.encode()
    found: set[int] = set()
    for pid in _all_pids():
        with suppress(OSError):  # it has ended, or belongs to another user
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.add(pid)
    return {pid for pid in found if _is_alive(pid)}


def send_signal(signal_number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to those of *pids* that still exist and belong to this user."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal_number)


def _scan_descendants(pid: int, excluding: Set[int]) -> set[int]:
    found: set[int] = set()
    new = _children_of(pid) - excluding
    while new:
        found |= new
        new = {child for parent in new for child in _children_of(parent)} - found - excluding
    return found


def _children_of(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # it has ended
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                found.update(map(int, (thread / "children").read_bytes().split()))
    return found


def _all_pids() -> list[int]:
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
    """Whether the process runs and is not a zombie."""
    if not _PROC.is_dir():
        return True
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
