"""Find and signal the processes that belong together.

The descendants of a child subreaper are all that it ever started. Without one, which needs Linux,
there are the processes of a session, and those with a variable in their environment.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LOOKS: Final = 5


def has_child_lists() -> bool:
    """Whether `descendants_of` works on this system."""
    return (_PROC / "thread-self" / "children").exists()


def descendants_of(pid: int, without: Set[int] = frozenset()) -> set[int]:
    """Return the ids of the living descendants of *pid*, except for *without* and all below those.

    The kernel's lists of children keep the cost independent of how many processes there are.
    """
    found = _listed_under(pid, without)
    # A process that ends meanwhile may hide its siblings, and moves its children up.
    for _ in range(_LOOKS):
        before, found = found, _listed_under(pid, without)
        if found == before:
            break
    return {pid for pid in found if _is_alive(pid)}


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


def _listed_under(pid: int, without: Set[int]) -> set[int]:
    found: set[int] = set()
    new = _children_of(pid) - without
    while new:
        found |= new
        new = {child for parent in new for child in _children_of(parent)} - found - without
    return found


def _children_of(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # it has ended
        for thread in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                found.update(map(int, (thread / "children").read_bytes().split()))
    return found


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
