"""A store whose answers a test can keep back."""

import threading
from typing import Any

from treefold.core.store import Entry
from treefold.stores.postgres import PostgresStore

_PATIENCE = 60.0


class SlowStore(PostgresStore):
    """Keeps back the entries that one thread has read, until it is told to go on.

    Attributes:
        thread: whose entries are kept back.
        has_read: is set when they are read.
        go_on: when the test sets it, they are returned.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.thread: threading.Thread | None = None
        self.has_read, self.go_on = threading.Event(), threading.Event()

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        entries = super().entries(tree, after=after)
        if threading.current_thread() is self.thread:
            self.has_read.set()
            assert self.go_on.wait(_PATIENCE)
        return entries
