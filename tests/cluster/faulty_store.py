"""A store with a fault at each write, and what must hold of its journal all the same."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from treefold.core.errors import FencedError
from treefold.core.store import Batch
from treefold.stores.postgres import PostgresStore

Write = Callable[[], list[int | FencedError]]
_one_at_a_time = threading.Lock()


class FaultyStore(PostgresStore):
    """Has each write done by *fault*, one at a time in this process."""

    def __init__(self, url: str, fault: Callable[[Write], list[Any]], **options: Any) -> None:
        super().__init__(url, **options)
        self._fault = fault

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        with _one_at_a_time:
            return self._fault(lambda: super(FaultyStore, self).append(batches))


def assert_whole(url: str, tree: int) -> None:
    """Check that a tree has no gap: neither in its places nor in the entries of a node."""
    with PostgresStore(url, create=False) as store:
        entries = store.entries(tree)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    numbers: dict[int, list[int]] = defaultdict(list)
    for entry in entries:
        numbers[entry.node].append(entry.number)
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())
