"""Saves a conversation to a store, in threads, in the order in which it happened."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from treefold.core.exchange import Exchange
from treefold.core.sessions import SavedSession, Sessions
from treefold.core.transcript import ToolResult
from treefold.runtime.loops.threads import in_thread


class Saver:
    """Saves one session.

    Changes are queued at once, and written by ``flush`` in a thread. A cancelled ``flush`` loses
    nothing: the next one writes what is left.
    """

    def __init__(self, sessions: Sessions, name: str, model: str) -> None:
        self._sessions = sessions
        self.name = name
        self._model = model
        self._head: int | None = None
        self._queue: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self.failure: Exception | None = None  # of the last write

    async def load(self) -> SavedSession:
        """Return the saved session; one that does not exist is empty, and created by ``flush``."""
        saved = await in_thread(self._sessions.find, self.name)
        if saved is None:
            return SavedSession(self.name, None, (), ())
        self._head = saved.head
        return saved

    async def branch(self, name: str) -> None:
        """Create this session as a fork of the session *name*.

        Raises:
            DuplicateNameError: this session already exists.
        """
        if await in_thread(self._sessions.find, name) is None:  # nothing was saved there yet
            await in_thread(self._sessions.check_free, self.name)
        else:
            self._head = (await in_thread(self._sessions.fork, name, self.name)).head

    def append(self, exchange: Exchange, preview: str = "") -> None:
        """Queue an exchange."""
        self._queue.append(partial(self._append, exchange, preview))

    def keep(self, results: Sequence[ToolResult]) -> None:
        """Queue the results that are to be sent with the next request."""
        self._queue.append(partial(self._keep, tuple(results)))

    def replace(self, exchanges: Sequence[Exchange]) -> None:
        """Queue the whole conversation, which was edited."""
        self._queue.append(partial(self._replace, tuple(exchanges)))

    async def flush(self) -> None:
        """Write what is queued.

        Raises:
            StoreError: it cannot be written.
            SessionConflictError: another client wrote to this session.
        """
        if self._queue:
            await in_thread(self._write)

    def _write(self) -> None:
        with self._lock:
            try:
                if self._head is None:
                    self._sessions.open(self.name, model=self._model)
                while self._queue:
                    self._queue[0]()
                    self._queue.popleft()
            except Exception as error:
                self.failure = error
                raise
            self.failure = None

    def _append(self, exchange: Exchange, preview: str) -> None:
        self._head = self._sessions.append(
            self.name, exchange, after=self._head, model=self._model, preview=preview
        )

    def _keep(self, results: Sequence[ToolResult]) -> None:
        self._sessions.keep(self.name, results, after=self._head)

    def _replace(self, exchanges: Sequence[Exchange]) -> None:
        self._head = self._sessions.replace(self.name, exchanges, after=self._head)
