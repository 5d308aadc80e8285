"""Which kind of file system a path is on, as far as the system tells."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from treefold.core.errors import StoreError

_MOUNTS: Final = Path("/proc/self/mountinfo")  # of Linux; elsewhere nothing is known
_OVER_NETWORK: Final = frozenset({
    "9p", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.sshfs", "gfs", "gfs2",
    "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs",
})  # fmt: skip
_OVER_NETWORK_BY_FUSE: Final = (
    "blob", "ceph", "dav", "drive", "ftp", "gcs", "gluster", "goofys", "juicefs", "moosefs", "nfs",
    "rclone", "s3", "seaweed", "smb",
)  # fmt: skip
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def mounts() -> str:
    """Return what this system says of its file systems, which is nothing but on Linux."""
    try:
        return os.fsdecode(_MOUNTS.read_bytes())
    except OSError:
        return ""


def refuse_network(path: str, mounts: str) -> None:
    """Raise StoreError if *path* is on a file system of another machine."""
    kind = file_system_of(path, mounts)
    if kind is not None and over_network(kind):
        raise StoreError(
            path,
            f"it is on a network file system ({kind}), which has no shared memory, and a journal "
            "(SQLite's write-ahead log) needs that; give a path on a local disk",
        )


def over_network(kind: str) -> bool:
    """Return whether files of this type of file system are on another machine."""
    if kind.startswith("fuse.") and any(name in kind[5:] for name in _OVER_NETWORK_BY_FUSE):
        return True
    return kind in _OVER_NETWORK or kind.startswith("gluster")


def file_system_of(path: str, mounts: str) -> str | None:
    """Return the type of the file system that *path* is on.

    Args:
        path: without links, ``..`` and the like.
        mounts: as Linux has it in ``/proc/self/mountinfo``.
    """
    found, longest = None, -1
    for point, kind in _mounted(mounts):
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two on one point, the later hides the earlier
            found, longest = kind, len(point)
    return found


def _mounted(mounts: str) -> Iterator[tuple[str, str]]:
    """Yield each mount point and its type; lines that are of another form are left out."""
    for line in mounts.split("\n"):
        place, dash, source = line.partition(" - ")
        fields, kind = place.split(" "), source.partition(" ")[0]
        if dash and kind and len(fields) > 4:
            yield _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]), kind
