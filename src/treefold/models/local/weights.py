"""The weights of local models: downloaded once, verified, and kept in the user's cache.

A file is put into the cache only when its SHA-256 is the expected one, so that a file there is
trusted if it has the right size. A file in the hub's own cache is verified when it is first used;
a link to it in our cache records that.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from treefold.core.errors import UsageError
from treefold.core.user_folder import cache_folder
from treefold.models.local import hub
from treefold.models.local.catalogue import (
    SMOLLM2,
    HubFile,
    PackageFile,
    Weights,
    named_weights,
)
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


def fetch_weights(
    weights: Weights | str = SMOLLM2,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    folder: Path | None = None,
) -> Path:
    """Return the path of *weights*, downloading them first if they are not in the cache.

    It blocks: in a coroutine, call it with ``asyncio.to_thread``. Concurrent calls are safe, and an
    interrupted one leaves no running process. What it has received from the Hugging Face hub is
    kept, and the next call continues there.

    Args:
        weights: the file to download, or the name of a local model: ``smollm2-135m``,
            ``qwen2.5-coder-0.5b`` or ``qwen2.5-coder-1.5b``.
        on_progress: called with the bytes received and the total; an exception stops the download.
        folder: the cache; by default a folder below ``cache_folder()``.

    Raises:
        WeightsUnavailableError: the download failed; the message says what to do.

    Example:
        >>> from treefold.models import LocalModel, fetch_weights
        >>> LocalModel(fetch_weights())  # doctest: +SKIP
        <LocalModel local:...>
    """
    weights = named_weights(weights) if isinstance(weights, str) else weights
    folder = folder or models_folder()
    on_progress = on_progress or _ignore
    try:
        found = find_verified(weights, folder=folder)
        if found is not None:
            return found
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(weights.source, HubFile):
            return _fetch_from_hub(weights, weights.source, folder, on_progress)
        _remove_abandoned(folder)
        # On Windows a virus scanner may still hold a file open; it is removed later.
        with TemporaryDirectory(
            prefix=_TEMPORARY_PREFIX, dir=folder, ignore_cleanup_errors=True
        ) as temporary:
            return _fetch_package(weights, weights.source, folder, Path(temporary), on_progress)
    except DownloadFailedError as error:
        raise _unavailable(weights, str(error)) from error
    except OSError as error:
        reason = f"{error.strerror or error} ({error.filename or folder})"
        raise _unavailable(weights, reason) from error


def models_folder() -> Path:
    """Return the folder of the cache that holds weights; it need not exist."""
    return cache_folder() / "models"


def cached_weights(weights: Weights = SMOLLM2, *, folder: Path | None = None) -> Path | None:
    """Return the path of *weights* in the cache, or None if they are not there."""
    path = (folder or models_folder()) / weights.file
    return path if _size(path) == weights.size else None


def find_candidate(weights: Weights) -> Path | None:
    """Return the path of *weights* in our cache, or in the hub's, where they are not verified."""
    return cached_weights(weights) or _in_hub_cache(weights)


def find_verified(weights: Weights, *, folder: Path | None = None) -> Path | None:
    """Return the path of *weights* in our cache, or in the hub's if they are the expected ones.

    A file in the hub's cache is read completely the first time, and then linked from ours.
    """
    folder = folder or models_folder()
    if (cached := cached_weights(weights, folder=folder)) is not None:
        return cached
    found = _in_hub_cache(weights)
    if found is None or _sha256(found) != weights.sha256:
        return None
    target = folder / weights.file
    # Where no link can be made (on Windows without the right to, in a read-only cache), the file
    # is verified again in the next process.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / f".{weights.file}.link"
        link.unlink(missing_ok=True)
        link.symlink_to(found.absolute())
        os.replace(link, target)
        return target
    return found


def not_fetched(weights: Weights) -> str:
    """Return the message for a model that needs *weights* and does not find them."""
    which = "the default local model" if weights is SMOLLM2 else weights.name
    return (
        f"{which} is not downloaded yet: fetch it once ({weights.megabytes} MB) with"
        f" '{weights.fetch_command}', or use a GGUF file of your own: LocalModel('model.gguf')"
    )


def partial_size(weights: Weights) -> int:
    """Return how many bytes an interrupted download of *weights* has received."""
    return _size(partial_file(weights, models_folder())) or 0


def _fetch_package(
    weights: Weights,
    source: PackageFile,
    folder: Path,
    temporary: Path,
    on_progress: Callable[[int, int], None],
) -> Path:
    for installed in _installed(weights, source):
        new = temporary / weights.file
        shutil.copyfile(installed, new)
        with contextlib.suppress(DownloadFailedError):
            return keep(weights, new, folder, str(installed))
    requirement = f"{source.package}=={source.version}"
    new = download(requirement, source.path, weights.size, temporary, on_progress)
    on_progress(weights.size, weights.size)
    return keep(weights, new, folder, f"{weights.file} of {requirement}")


def _fetch_from_hub(
    weights: Weights, source: HubFile, folder: Path, on_progress: Callable[[int, int], None]
) -> Path:
    partial = partial_file(weights, folder)
    with hub.locked(partial.with_suffix(".lock")):
        # Another process may have had the lock until now.
        if (cached := cached_weights(weights, folder=folder)) is not None:
            return cached
        hub.download(weights, source, partial, on_progress)
        return keep(weights, partial, folder, f"{source.path} of {source.repository}")


def partial_file(weights: Weights, folder: Path) -> Path:
    """Return the path of a download of *weights* that is not complete."""
    return folder / f".{weights.file}.partial"


def keep(weights: Weights, new: Path, folder: Path, described: str) -> Path:
    """Move the file *new* to its place in *folder*, or remove it if it is not *weights*.

    Raises:
        DownloadFailedError: it is not *weights*; *described* says what it is.
    """
    sha256 = _sha256(new)
    if sha256 != weights.sha256:
        new.unlink()
        raise DownloadFailedError(
            f"{described} has SHA-256 {sha256} instead of {weights.sha256}; it was removed"
        )
    target = folder / weights.file
    try:
        os.replace(new, target)
    except PermissionError:  # on Windows, if another process was faster and has it open
        if cached_weights(weights, folder=folder) is None:
            raise
    return target


def _in_hub_cache(weights: Weights) -> Path | None:
    if not isinstance(weights.source, HubFile):
        return None
    found = hub.in_hub_cache(weights.source)
    return found if found is not None and _size(found) == weights.size else None


def _installed(weights: Weights, source: PackageFile) -> Iterator[Path]:
    """Yield the file if the package is installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        path = Path(str(importlib.metadata.distribution(source.package).locate_file("")))
        path /= source.path
        if path.is_file() and _size(path) == weights.size:
            yield path


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


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
    from_hub = isinstance(weights.source, HubFile)
    place = "the Hugging Face hub" if from_hub else "a package registry"
    # The package that contains the file is on the disk as well until it is unpacked.
    copies = 1 if from_hub else 2
    hundreds = -(-weights.size * copies // 100_000_000)
    return WeightsUnavailableError(
        f"the weights {weights.file} could not be fetched: {reason}. Connect to {place} "
        f"and run '{weights.fetch_command}', or use a file of your own: "
        'LocalModel("/path/to/model.gguf"), or set TREEFOLD_CACHE to a writable folder with '
        f"{hundreds}00 MB of free space"
    )


def _ignore(_done: int, _total: int) -> None: ...
