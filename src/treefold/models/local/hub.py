"""Downloads a file from the Hugging Face hub, with the hub's own library.

``hf_hub_download`` deletes what it has when it is interrupted, so this module calls the function
below it, ``http_get``, which appends to a file that the caller keeps. The library reads
``HF_ENDPOINT``, ``HF_HUB_OFFLINE``, the user's token and the proxies.
"""

import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from treefold.models.local.catalogue import HubFile, Weights
from treefold.models.local.download import DownloadFailedError
from treefold.version import __version__

REQUIREMENT: Final = "huggingface-hub>=2.4"
_MODULES: Final = ("constants", "errors", "file_download", "utils")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def download(
    weights: Weights, source: HubFile, path: Path, on_progress: Callable[[int, int], None]
) -> None:
    """Download *source* to the file at *path*, continuing after the bytes that it has.

    However this function ends, it keeps what was received, and that is never more than the size of
    *weights*.

    Raises:
        DownloadFailedError: the hub cannot be reached, or has another file than *weights*.
    """
    hub = _library()
    with _explained(hub, source):
        url = hub.hf_hub_url(source.repository, source.path, endpoint=source.endpoint)
        _check_metadata(weights, hub.get_hf_file_metadata(url, library_name="treefold"))
        with path.open("ab") as file:
            have = file.tell()
            if have > weights.size:
                have = file.truncate(0)
            _check_space(path.parent, weights.size - have)
            hub.file_download.http_get(
                url,
                _SizedFile(file, weights.size),
                resume_size=have,
                expected_size=weights.size,
                headers=hub.utils.build_hf_headers(
                    library_name="treefold", library_version=__version__
                ),
                tqdm_class=partial(_Progress, weights.size, on_progress),
            )


def in_hub_cache(source: HubFile) -> Path | None:
    """Return the path of *source* in the hub's own cache; None if it is not there."""
    try:
        found = _library().try_to_load_from_cache(source.repository, source.path)
    except DownloadFailedError:
        return None
    return Path(found) if isinstance(found, str) else None


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock file *path*, so that two processes do not write to the same download."""
    with _library().utils.WeakFileLock(path):
        yield


def _library() -> Any:
    try:
        for module in _MODULES:
            import_module(f"huggingface_hub.{module}")
        return import_module("huggingface_hub")
    except ImportError as error:
        raise DownloadFailedError(
            f"a package is missing: pip install '{REQUIREMENT}' (it is in 'treefold[local]')"
        ) from error


def _check_metadata(weights: Weights, metadata: Any) -> None:
    """Raise before anything is downloaded if the hub says that it has another file.

    For a large file, the hub's ETag is its SHA-256; that of a mirror may be anything.
    """
    sha256 = metadata.etag if _SHA256.fullmatch(metadata.etag or "") else weights.sha256
    size = weights.size if metadata.size is None else metadata.size
    if (size, sha256) != (weights.size, weights.sha256):
        raise DownloadFailedError(
            f"the hub has another file of that name ({size} bytes, SHA-256 {sha256} instead of "
            f"{weights.size} bytes, {weights.sha256}), and nothing was downloaded"
        )


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadFailedError(
            f"{folder} has {free // 1_000_000} MB of free space, and {needed // 1_000_000} MB are"
            " needed"
        )


@contextmanager
def _explained(hub: Any, source: HubFile) -> Generator[None]:
    """Raise the errors of the hub's library as one sentence."""
    address = source.endpoint or hub.constants.ENDPOINT
    try:
        yield
    except hub.errors.OfflineModeIsEnabled as error:
        raise DownloadFailedError("HF_HUB_OFFLINE is set, so nothing is downloaded") from error
    except hub.errors.HfHubHTTPError as error:
        status = error.response.status_code
        raise DownloadFailedError(
            f"{address} answered with HTTP {status} for {source.repository}/{source.path}"
        ) from error
    except import_module("httpx2").HTTPError as error:
        raise DownloadFailedError(
            f"{address} cannot be reached ({type(error).__name__}: {error})"
        ) from error


class _SizedFile:
    """A file that is never longer than *size*: the hub's library checks the size afterwards."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self.tell, self.seek, self.truncate = file.tell, file.seek, file.truncate

    def write(self, data: bytes) -> int:
        if self._file.tell() + len(data) > self._size:
            # It is another file, so what it begins with is of no use.
            self._file.truncate(0)
            raise DownloadFailedError(
                f"the hub sent more than the {self._size} bytes of the file; it was removed"
            )
        return self._file.write(data)


class _Progress:
    """Takes the place of tqdm's progress bar."""

    def __init__(
        self,
        size: int,
        on_progress: Callable[[int, int], None],
        *,
        initial: int,
        **_options: object,
    ) -> None:
        self._done = initial
        self._total = size
        self._on_progress = on_progress
        on_progress(initial, self._total)

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def update(self, count: int) -> None:
        self._done += count
        self._on_progress(self._done, self._total)
