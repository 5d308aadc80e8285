"""Loads encodings of tiktoken, but only those whose data is on this machine.

tiktoken downloads the data of an encoding on first use. Counting tokens should not open a
connection, so this module looks into tiktoken's cache first, by tiktoken's own rules, and loads an
encoding only if nothing would be downloaded.
"""

import hashlib
import logging
import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

_log = logging.getLogger(__name__)

ADDRESS: Final = "https://openaipublic.blob.core.windows.net/encodings"
_DEFAULT: Final = "cl100k_base"  # for models that tiktoken does not know


class Encoding(Protocol):
    """Turns text into tokens; the part of ``tiktoken.Encoding`` that is used here."""

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the tokens of *text*; special tokens in it are treated as text."""
        ...


class File(NamedTuple):
    """A data file of tiktoken: its name at ``ADDRESS``, and its hash."""

    name: str
    sha256: str


_P50K: Final = File(
    "p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
)
_O200K: Final = File(
    "o200k_base.tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
)
# The file that tiktoken reads for each encoding, and the hash that it checks.
FILES: Final = {
    "cl100k_base": File(
        "cl100k_base.tiktoken", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
    ),
    "o200k_base": _O200K,
    "o200k_harmony": _O200K,
    "p50k_base": _P50K,
    "p50k_edit": _P50K,
    "r50k_base": File(
        "r50k_base.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
    ),
}

_found: dict[str, Encoding] = {}
_warned = False  # once per process


def find_encoding(model: str) -> Encoding | None:
    """Return the encoding of *model*, or the default one if tiktoken does not know the model.

    Returns None if tiktoken is not installed or would have to download the data.
    """
    try:
        tiktoken: Any = import_module("tiktoken")
    except ImportError:
        return None
    try:
        name: str = tiktoken.encoding_name_for_model(model)
    except KeyError:
        name = _DEFAULT
    if name not in FILES:
        name = _DEFAULT
    if name not in _found:
        if not _is_cached(name):
            _warn_once(name)
            return None
        _found[name] = tiktoken.get_encoding(name)
    return _found[name]


def _is_cached(name: str) -> bool:
    """Return whether the data of an encoding is in tiktoken's cache, complete."""
    folder, file = _cache_folder(), FILES[name]
    if not folder:
        return False
    key = hashlib.sha1(f"{ADDRESS}/{file.name}".encode(), usedforsecurity=False).hexdigest()
    try:
        data = Path(folder, key).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == file.sha256


def _cache_folder() -> str:
    """Return the folder of tiktoken's cache; empty if caching is turned off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return os.environ[variable]
    return str(Path(tempfile.gettempdir(), "data-gym-cache"))


def _warn_once(name: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        _log.warning(
            "tiktoken has no data for %s on this machine, so tokens are estimated by counting"
            ' characters; to fetch it once: python -c "import tiktoken; tiktoken.get_encoding(%r)"',
            name,
            name,
        )
