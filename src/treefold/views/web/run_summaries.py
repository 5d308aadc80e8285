"""What the list shows of a run beyond its row: for that, the whole run has to be read.

So a client asks only for the runs that are on its screen, and a run that has ended is read once.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from treefold.core.errors import StoreError, UnknownNodeError
from treefold.runtime.observe.observer import Observer
from treefold.views import data

_KEPT: Final = 20_000  # summaries of runs that have ended, those used last


class RunSummaries:
    """Summarizes runs, from any thread."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._ended: OrderedDict[int, dict[str, Any]] = (
            OrderedDict()
        )  # by run, used last at the end

    def of(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return the summaries of these runs by id, without those that cannot be read."""
        found = {id: self._summary(id) for id in ids}
        return {id: summary for id, summary in found.items() if summary is not None}

    def _summary(self, id: int) -> dict[str, Any] | None:
        with self._lock:
            if id in self._ended:
                self._ended.move_to_end(id)
                return self._ended[id]
        try:
            view = self._observer.get_view(id)
        except (StoreError, UnknownNodeError):
            return None
        summary = data.summary(view)
        if view.state.final:
            with self._lock:
                self._ended[id] = summary
                if len(self._ended) > _KEPT:
                    self._ended.popitem(last=False)
        return summary
