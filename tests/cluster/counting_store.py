"""Stores that count what is read from them, or lose notifications."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from treefold.core.cluster import Load, Orders, Subscription
from treefold.core.question import Question
from treefold.core.store import Entry, Message, TreeRow
from treefold.stores.postgres import PostgresStore
from wrapped_part import WrappedPart


class CountingStore(PostgresStore):
    """Counts what it reads.

    Attributes:
        read: how many entries were returned.
        vain: how often entries were asked for and there were none.
        useful: how often there were some.
        questions_read: how many questions were returned.
        inboxes_read: how often messages were asked for.
        trees_read: how many rows of trees were returned.
        beats: how many heartbeats were sent.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.read = self.vain = self.useful = self.questions_read = self.beats = 0
        self.trees_read = self.inboxes_read = 0
        members: Any = CountingMembers(self)
        self.cluster = replace(self.cluster, members=members)

    def _count(self, entries: list[Entry]) -> list[Entry]:
        self.read += len(entries)
        self.vain += not entries
        self.useful += bool(entries)
        return entries

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        return self._count(super().entries(tree, after=after))

    def entries_around(self, call: int, *, leaving_out: Collection[str] = ()) -> list[Entry]:
        return self._count(super().entries_around(call, leaving_out=leaving_out))

    def trees(
        self, *, after: int = 0, limit: int | None = None, open: bool | None = None
    ) -> list[TreeRow]:
        found = super().trees(after=after, limit=limit, open=open)
        self.trees_read += len(found)
        return found

    def questions(
        self, *, answered: bool = False, node: int | None = None, limit: int | None = None
    ) -> list[Question]:
        found = super().questions(answered=answered, node=node, limit=limit)
        self.questions_read += len(found)
        return found

    def inbox(self, *, drives: Collection[int] | None = None, owned: bool = False) -> list[Message]:
        self.inboxes_read += owned
        return super().inbox(drives=drives, owned=owned)


class CountingMembers(WrappedPart):
    """Counts heartbeats."""

    def __init__(self, store: CountingStore) -> None:
        super().__init__(store.cluster.members)
        self._store = store

    def beat(self, load: Load) -> Orders:
        self._store.beats += 1
        return self.inner.beat(load)


class DeafStore(CountingStore):
    """Hears only of those trees that a test tells it about, by ``tell``."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.wakes: list[Callable[[Collection[int]], None]] = []
        self.cluster: Any = DeafCluster(self)

    def tell(self, tree: int) -> None:
        """Notify all who listen that a tree has changed."""
        for wake in self.wakes:
            wake([tree])


class DeafCluster(WrappedPart):
    """Lets nobody hear of anything."""

    def __init__(self, store: DeafStore) -> None:
        super().__init__(store.cluster)
        self._wakes = store.wakes

    def listen(
        self,
        wake: Callable[[Collection[int]], None],
        *,
        posted: Callable[[Collection[int]], None] | None = None,
        broadcasts: bool = False,
    ) -> Subscription:
        self._wakes.append(wake)
        return self.inner.listen(lambda _: None, broadcasts=broadcasts)
