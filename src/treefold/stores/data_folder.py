"""Where this user's data is kept, unless a program says otherwise."""

from pathlib import Path
from typing import Final

from treefold.core.errors import StoreError
from treefold.core.user_folder import UserFolder

_DATA: Final = UserFolder(
    "TREEFOLD_HOME", "XDG_DATA_HOME", "data", "Library/Application Support", ".local/share"
)


def data_folder() -> Path:
    """Return ``$TREEFOLD_HOME``, or the folder for treefold where this system keeps users' data."""
    return _DATA.path()


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
            f"the folder cannot be made ({error.strerror or error}); set TREEFOLD_HOME to one that "
            "may be written",
        ) from error
    return folder
