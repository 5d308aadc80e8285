"""Opens the store that a path, a URL or an object names."""

import os

from treefold.core.errors import InvalidValueError, StoreError, UsageError
from treefold.core.store import Store
from treefold.stores.urls import is_url

Source = Store | str | os.PathLike[str]


def open_store(source: Source, *, create: bool = True) -> Store:
    """Return the store that *source* names; a store is returned as it is.

    Args:
        source: the path of a SQLite file, a ``postgresql://`` URL, or a store.
        create: whether a journal that does not exist is created.

    Raises:
        StoreError: it cannot be opened, or does not exist; the message says what to do.
        InvalidValueError: *source* is nothing of that kind.
    """
    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "inbox"):
            raise InvalidValueError(f"store must be the path of a file or a Store, got {source!r}")
        return source
    path = os.fspath(source)
    if is_url(path):
        return _open_url(path, create=create)
    if not create and not os.path.exists(os.path.expanduser(path)):
        raise StoreError(
            path, "there is no such file; give the path that a Runtime(store=...) was made with"
        )
    from treefold.stores.sqlite_store import SqliteStore  # noqa: PLC0415 - only paths need it

    return SqliteStore(path)


def _open_url(url: str, *, create: bool) -> Store:
    try:
        from treefold.stores.postgres.store import PostgresStore  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError as error:
        raise missing_driver(error) from None
    return PostgresStore(url, create=create)


def missing_driver(error: ModuleNotFoundError) -> UsageError:
    """Return the error for a URL without the package that talks to its server."""
    missing = str(error.name).partition(".")[0]
    return UsageError(
        f"PostgreSQL needs a package that is not installed ({missing}): pip install"
        " 'treefold[postgres]'"
    )
