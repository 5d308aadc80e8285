"""Keep a conversation in a store, beside the loop, in the order in which it happened."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from treefold.core.exchange import Exchange
from treefold.core.transcript import ToolResult
from treefold.runtime.threads import in_thread
from treefold.stores.sessions import SavedSession, SessionStore


class Saver:
    """Writes one session of a store.

    What is to be written is noted at once, and written by ``flush`` in a thread. Whoever stops
    waiting for that loses nothing: the next one writes what is left.
    """

    def __init__(self, store: SessionStore, name: str, model: str) -> None:
        self._store = store
        self.name = name
        self._model = model
        self._head: int | None = None
        self._noted: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self.failure: Exception | None = None  # why the last attempt to write came to nothing

    async def load(self) -> SavedSession:
        """Return what was saved, if anything was; a session is made when there is something."""
        saved = await in_thread(self._store.find, self.name)
        if saved is None:
            return SavedSession(self.name, None, (), ())
        self._head = saved.head
        return saved

    async def branch(self, name: str) -> None:
        """Begin as the session *name* is now.

        Raises:
            DuplicateNameError: there is a session of this name already.
        """
        if await in_thread(self._store.find, name) is None:  # nothing was said there yet
            await in_thread(self._store.check_free, self.name)
        else:
            self._head = (await in_thread(self._store.fork, name, self.name)).head

    def append(self, exchange: Exchange, preview: str = "") -> None:
        """Note an exchange."""
        self._noted.append(partial(self._append, exchange, preview))

    def keep(self, results: Sequence[ToolResult]) -> None:
        """Note all results that wait to be sent."""
        self._noted.append(partial(self._keep, tuple(results)))

    def replace(self, exchanges: Sequence[Exchange]) -> None:
        """Note that the history was changed, and is this now."""
        self._noted.append(partial(self._replace, tuple(exchanges)))

    async def flush(self) -> None:
        """Write what was noted.

        Raises:
            StoreError: it cannot be written.
            SessionConflictError: somebody else wrote to this session.
        """
        if self._noted:
            await in_thread(self._write)

    def _write(self) -> None:
        with self._lock:
            try:
                if self._head is None:
                    self._store.open(self.name, model=self._model)
                while self._noted:
                    self._noted[0]()
                    self._noted.popleft()
            except Exception as error:
                self.failure = error
                raise
            self.failure = None

    def _append(self, exchange: Exchange, preview: str) -> None:
        self._head = self._store.append(
            self.name, exchange, after=self._head, model=self._model, preview=preview
        )

    def _keep(self, results: Sequence[ToolResult]) -> None:
        self._store.keep(self.name, results, after=self._head)

    def _replace(self, exchanges: Sequence[Exchange]) -> None:
        self._head = self._store.replace(self.name, exchanges, after=self._head)
