"""The clock of a shared store, by which all of its workers go.

Workers compare what they do with times that others have recorded: deadlines, expiries, the ends of
sleeps. The clocks of their machines may differ, and be set.
"""

from treefold.core.moments import steady


class StoreClock:
    """The clock of a store as this process knows it from its answers; usable in any thread."""

    def __init__(self) -> None:
        self._ahead: float | None = None  # of ``steady``

    def set(self, now: float, sent: float) -> None:
        """Note that the store has said *now* in its answer to what was *sent* then (``steady``)."""
        least, most = now - steady(), now - sent
        # As little as is necessary, so that answers which are late do not make it go back.
        former = (least + most) / 2 if self._ahead is None else self._ahead
        self._ahead = min(max(former, least), most)

    def now(self) -> float:
        """Return the time, in seconds since the epoch."""
        assert self._ahead is not None  # it was set when the process joined
        return steady() + self._ahead
