"""An engine around another one, for tests that change what an engine does."""

from collections.abc import Collection

from treefold.engines import Depth, Stop, Take, Taken, Ticket, WorkEngine


class WrappedEngine:
    """Does what *inner* does; subclasses change ``submit``, or ``taking``."""

    def __init__(self, inner: WorkEngine) -> None:
        self.inner = inner

    async def open(self, journal: str = "") -> None:
        await self.inner.open(journal)

    async def submit(self, ticket: Ticket) -> None:
        await self.inner.submit(ticket)

    async def withdraw(self, node: int) -> None:
        await self.inner.withdraw(node)

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        async def taking(node: int) -> Taken:
            return await self.taking(take, node)

        await self.inner.work(taking, queues=queues, slots=slots, stop=stop)

    async def taking(self, take: Take, node: int) -> Taken:
        """Run a drive that *inner* delivers."""
        return await take(node)

    async def depth(self, queues: Collection[str]) -> Depth:
        return await self.inner.depth(queues)

    async def close(self) -> None:
        await self.inner.close()


class Repeating(WrappedEngine):
    """Delivers each drive again while it runs, once for each worker."""

    def __init__(self, inner: WorkEngine) -> None:
        super().__init__(inner)
        self.deliveries: list[int] = []

    async def taking(self, take: Take, node: int) -> Taken:
        is_first = node not in self.deliveries
        self.deliveries.append(node)
        if is_first:
            await self.inner.submit(Ticket(node=node))
        return await take(node)
