"""Tells the URLs of databases from the paths of files, and hides what is secret in them."""

import os
from typing import Final, TypeGuard
from urllib.parse import urlsplit

_SCHEMES: Final = ("postgresql://", "postgres://")


def is_url(source: object) -> TypeGuard[str]:
    """Whether *source* is the URL of a database, and not the path of a file."""
    return isinstance(source, str) and source.lower().startswith(_SCHEMES)


def public_name(source: str | os.PathLike[str]) -> str:
    """Return a path as it is, and a URL without its user, password and parameters."""
    path = os.fspath(source)
    if not is_url(path):
        return path
    try:
        parts = urlsplit(path)
    except ValueError:
        return f"{path.partition(':')[0]}://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
