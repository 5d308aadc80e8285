"""The folder for the user's data, unless a program gives another path."""

from pathlib import Path
from typing import Final

from treefold.core.errors import StoreError
from treefold.core.user_folder import UserFolder

_DATA: Final = UserFolder(
    "TREEFOLD_HOME", "XDG_DATA_HOME", "data", "Library/Application Support", ".local/share"
)


def data_folder() -> Path:
    """Return ``$TREEFOLD_HOME``, or treefold's folder in the data folder of the user."""
    return _DATA.path()


def make_data_folder() -> Path:
    """Return ``data_folder()``; create it, for its owner only, if it does not exist.

    Raises:
        StoreError: it cannot be created.
    """
    folder = data_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            str(folder),
            f"the folder cannot be created ({error.strerror or error}); set TREEFOLD_HOME to a "
            "writable one",
        ) from error
    return folder
