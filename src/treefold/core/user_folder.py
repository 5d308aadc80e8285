"""The folders in which treefold keeps files of the current user.

An environment variable sets each; the default is where the operating system keeps such files.
"""

import os
import sys
from pathlib import Path
from typing import Final

import platformdirs

_APP: Final = "treefold"


def data_folder() -> Path:
    """Return ``$TREEFOLD_HOME``, or the user's data folder of treefold; it need not exist."""
    if folder := _named_by("TREEFOLD_HOME"):
        return folder
    folder = platformdirs.user_data_path(_APP, appauthor=False)
    # On Windows the cache is inside this folder, so the data has a folder of its own beside it.
    return folder / "data" if sys.platform == "win32" else folder


def cache_folder() -> Path:
    """Return ``$TREEFOLD_CACHE``, or the user's cache folder of treefold; it need not exist."""
    return _named_by("TREEFOLD_CACHE") or platformdirs.user_cache_path(_APP, appauthor=False)


def _named_by(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else None
