"""The former method names of stores, which are deprecated."""

import warnings
from typing import Any, Final, cast

from treefold.core.errors import InvalidValueError
from treefold.core.store import Store

_FORMER_NAMES: Final = {
    "acquire": "drive",
    "is_owned": "is_driven",
    "broadcast": "tell",
    "read_broadcasts": "told",
}


class FormerNames:
    """The former names of methods, for the stores of this package."""

    def drive(self: Store) -> bool:
        """Deprecated: use ``acquire``."""
        _warn(self, "acquire")
        return self.acquire()

    def is_driven(self: Store) -> bool:
        """Deprecated: use ``is_owned``."""
        _warn(self, "is_owned")
        return self.is_owned()

    def tell(self: Store, text: str) -> None:
        """Deprecated: use ``broadcast``."""
        _warn(self, "broadcast")
        self.broadcast(text)

    def told(self: Store, after: int = 0) -> tuple[int, list[str]]:
        """Deprecated: use ``read_broadcasts``."""
        _warn(self, "read_broadcasts")
        return self.read_broadcasts(after)


class _CurrentNames:
    """A store that has only the former names, under the current ones."""

    def __init__(self, store: object) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, _FORMER_NAMES.get(name, name))


def checked_store(store: object) -> Store:
    """Return *store* itself, or under the current names if it has only the former ones.

    Raises:
        InvalidValueError: it is not a store.
    """
    if hasattr(store, "acquire"):
        return cast("Store", store)
    if not hasattr(store, "drive"):
        raise InvalidValueError(f"store must be the path of a file or a Store, got {store!r}")
    renamed = ", ".join(f"{former} to {name}" for name, former in _FORMER_NAMES.items())
    message = f"{type(store).__name__} has the former method names of a store; rename {renamed}"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return cast("Store", _CurrentNames(store))


def _warn(store: object, name: str) -> None:
    former = f"{type(store).__name__}.{_FORMER_NAMES[name]}"
    warnings.warn(f"{former} is now called {name}", DeprecationWarning, stacklevel=3)
