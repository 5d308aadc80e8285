"""Refuses to drive journals of other users: what is unfinished in one would run as the driver.

That is all that a file tells about where it came from: one that was restored from a backup, or is
on the volume of a new container, looks like one that was downloaded.
"""

import os
from typing import Final

from treefold.core.errors import StoreError

_ROOT: Final = 0


def refuse_other_owner(path: str) -> None:
    """Raise StoreError if the file belongs to a user who could not act as this one anyway.

    Root may drive every journal: in a container the files of a volume often belong to a user of
    another machine.
    """
    if not hasattr(os, "geteuid"):  # on Windows
        return
    owner, user = os.stat(path).st_uid, os.geteuid()
    if owner in {user, _ROOT} or user == _ROOT:
        return
    raise StoreError(
        path,
        f"it belongs to {_name(owner)}, and what is unfinished in it would be run by"
        f" {_name(user)}; read it with treefold.attach(), or copy it to a file of your own if you"
        " trust what is in it",
    )


def _name(user: int) -> str:
    import pwd  # noqa: PLC0415 - Windows has none

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
