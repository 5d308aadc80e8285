"""Files that only their owner can read, written whole or not at all."""

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from treefold.core.errors import StoreError


def write_file(path: str | Path, parts: Iterable[bytes]) -> None:
    """Write *parts* to a file; an existing file is replaced once everything is written.

    Raises:
        StoreError: it cannot be written.
    """
    path = Path(path).expanduser().resolve()
    try:
        _write(path, parts)
    except OSError as error:
        raise StoreError(
            str(path),
            f"it cannot be written ({error.strerror or error}); check its folder and the disk",
        ) from error


def _write(path: Path, parts: Iterable[bytes]) -> None:
    number, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # for its owner alone
    try:
        with open(number, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
