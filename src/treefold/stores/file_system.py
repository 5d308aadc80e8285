"""Refuses paths on network file systems, on which SQLite's write-ahead log is not safe.

SQLite does not notice them itself; docs/decisions/0021 says why this is checked.
"""

import os
import re
from pathlib import Path
from typing import Final

from treefold.core.errors import StoreError

_MOUNTS: Final = Path("/proc/self/mountinfo")  # Linux only; on other systems nothing is checked
_NETWORK: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|davfs|glusterfs|gpfs|lustre|nfs4?|smb3|smbfs"
    r"|fuse\..*(blob|ceph|dav|gcs|gluster|juicefs|nfs|rclone|s3|smb|sshfs).*"
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def read_mounts() -> str:
    """Return the mount table of this process; empty on systems other than Linux."""
    try:
        return os.fsdecode(_MOUNTS.read_bytes())
    except OSError:
        return ""


def refuse_network(path: str, mounts: str) -> None:
    """Raise StoreError if *path* is on a network file system."""
    kind = file_system_of(path, mounts)
    if kind is not None and is_network(kind):
        raise StoreError(
            path,
            f"it is on a network file system ({kind}), which has no shared memory, and a journal "
            "(SQLite's write-ahead log) needs that; give a path on a local disk",
        )


def is_network(kind: str) -> bool:
    """Return whether this type of file system keeps its files on another machine."""
    return _NETWORK.fullmatch(kind) is not None


def file_system_of(path: str, mounts: str) -> str | None:
    """Return the type of the file system that the absolute *path* is on.

    Args:
        path: a path without symbolic links.
        mounts: the mount table, in the format of ``/proc/self/mountinfo``.
    """
    found, longest = None, -1
    for line in mounts.split("\n"):
        head, dash, tail = line.partition(" - ")
        fields, kind = head.split(" "), tail.partition(" ")[0]
        if not dash or not kind or len(fields) <= 4:
            continue
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one point, the later one hides the earlier.
        if inside and len(point) >= longest:
            found, longest = kind, len(point)
    return found
