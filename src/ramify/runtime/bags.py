"""What calls keep between them: one bag a node, alive as long as its tree."""

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class SessionBag:
    """Objects that belong to one node, under a namespace and a key.

    Functions reach it through ``ctx.get_or_put``, which says whose bag is meant.

    Example:
        >>> bag = SessionBag()
        >>> bag.get_or_put("shell", "cwd", lambda: "/tmp")
        '/tmp'
        >>> bag.get_or_put("shell", "cwd", lambda: "/home")
        '/tmp'
    """

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], Any] = {}
        self._lock = threading.RLock()  # a factory may ask for something else in the same bag

    def get_or_put(self, namespace: str, key: str, factory: Callable[[], Any]) -> Any:
        """Return the object under *namespace* and *key*; *factory* makes it, once."""
        with self._lock:
            if (namespace, key) not in self._items:
                self._items[namespace, key] = factory()
            return self._items[namespace, key]

    async def aclose(self) -> None:
        """Close what can be closed, newest first, and let go of everything."""
        with self._lock:
            items, self._items = self._items, {}
        for (namespace, key), item in reversed(items.items()):
            close = getattr(item, "aclose", None) or getattr(item, "close", None)
            if not callable(close):
                continue
            try:
                outcome = close()
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception:  # foreign code; the others still have to be closed
                log.exception("closing %s/%s of a session bag failed", namespace, key)
