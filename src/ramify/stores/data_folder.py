"""Where this user's data is kept, unless a program says otherwise."""

import os
import sys
from pathlib import Path

from ramify.core.errors import StoreError


def data_folder() -> Path:
    """Return ``$RAMIFY_HOME``, or the folder for ramify where this system keeps users' data."""
    if own := os.environ.get("RAMIFY_HOME"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(shared):
        return Path(shared) / "ramify"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "ramify" / "data"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "ramify"
    return Path.home() / ".local" / "share" / "ramify"


def make_data_folder() -> Path:
    """Return ``data_folder()``, which is made if it is not there, and then for its owner alone.

    Raises:
        StoreError: it cannot be made.
    """
    folder = data_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            str(folder),
            f"the folder cannot be made ({error.strerror or error}); set RAMIFY_HOME to one that "
            "may be written",
        ) from error
    return folder
