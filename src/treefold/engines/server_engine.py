"""What engines that are servers have in common: a package to import, and a connection."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from treefold.core.errors import ClosedError, EngineError
from treefold.core.work_engine import Depth, Stop, Take, Ticket, WorkEngine


class ServerEngine(ABC):
    """An engine that imports its package, and connects to its server, when it is opened.

    Args:
        extra: the extra of treefold that has the package.
    """

    def __init__(self, extra: str) -> None:
        self._extra = extra
        self._engine: WorkEngine | None = None

    @abstractmethod
    def _make(self, journal: str) -> WorkEngine:
        """Import the package, and return the engine that uses it."""
        ...

    async def open(self, journal: str = "") -> None:
        try:
            engine = self._make(journal)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            text = f"the package {package} is missing: pip install 'treefold[{self._extra}]'"
            raise EngineError(type(self).__name__, text) from None
        await engine.open()
        self._engine = engine

    async def submit(self, ticket: Ticket) -> None:
        await self._opened().submit(ticket)

    async def withdraw(self, node: int) -> None:
        await self._opened().withdraw(node)

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        await self._opened().work(take, queues=queues, slots=slots, stop=stop)

    async def depth(self, queues: Collection[str]) -> Depth:
        return await self._opened().depth(queues)

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()

    def _opened(self) -> WorkEngine:
        if self._engine is None:
            raise ClosedError(f"{type(self).__name__} is not open: call open() first")
        return self._engine
