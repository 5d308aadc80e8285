"""Stores that count what is read from them, or lose notifications."""

from collections.abc import Callable, Collection
from typing import Any

from treefold.core.question import Question
from treefold.core.shared_store import Load, Orders, Subscription
from treefold.core.store import Entry
from treefold.stores.postgres import PostgresStore


class CountingStore(PostgresStore):
    """Counts what it reads.

    Attributes:
        read: how many entries were returned.
        vain: how often entries were asked for and there were none.
        useful: how often there were some.
        questions_read: how many questions were returned.
        beats: how many heartbeats were sent.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.read = self.vain = self.useful = self.questions_read = self.beats = 0

    def _count(self, entries: list[Entry]) -> list[Entry]:
        self.read += len(entries)
        self.vain += not entries
        self.useful += bool(entries)
        return entries

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        return self._count(super().entries(tree, after=after))

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        return self._count(super().entries_around(call, leaving_out=leaving_out))

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        found = super().questions(answered=answered, node=node, limit=limit)
        self.questions_read += len(found)
        return found

    def beat(self, load: Load) -> Orders:
        self.beats += 1
        return super().beat(load)


class DeafStore(CountingStore):
    """Hears only of those trees that a test tells it about, by ``tell``."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._wakes: list[Callable[[Collection[int]], None]] = []

    def listen(
        self, wake: Callable[[Collection[int]], None], *, broadcasts: bool = False
    ) -> Subscription:
        self._wakes.append(wake)
        return super().listen(lambda _: None, broadcasts=broadcasts)

    def tell(self, tree: int) -> None:
        """Notify all who listen that a tree has changed."""
        for wake in self._wakes:
            wake([tree])
