"""Create the folder in which the current user's data is kept."""

from pathlib import Path

from treefold.core.errors import StoreError
from treefold.core.user_folder import data_folder


def make_data_folder() -> Path:
    """Return ``data_folder()``; if it is missing, create it, readable by its owner only.

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
            "folder that you may write to",
        ) from error
    return folder
