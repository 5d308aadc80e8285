"""The last completed runs of each agent, by which later runs choose how long prompts are cached."""

from collections import deque
from collections.abc import Sequence

from treefold.core.errors import StoreError
from treefold.core.store import Store
from treefold.runtime.loops.threads import in_thread


class PastRuns:
    """When the calls of completed runs began: read from the store, or kept here if there is none.

    Args:
        store: the journal that has them, from all processes; None to keep those of this one.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._runs: dict[str, deque[Sequence[float]]] = {}

    async def of(self, agent: str, limit: int) -> Sequence[Sequence[float]]:
        """Return the last *limit* runs of *agent* that have an answer, oldest first."""
        if self._store is None:
            return tuple(self._runs.get(agent, ()))[-limit:]
        try:
            return await in_thread(self._store.past_runs, agent, limit)
        except StoreError:
            # A run that could do without them should not fail for want of them.
            return ()

    def add(self, agent: str, call_times: Sequence[float], limit: int) -> None:
        """Note a completed run of *agent*, and forget those before its last *limit*."""
        if self._store is None:
            self._runs.setdefault(agent, deque(maxlen=limit)).append(call_times)
