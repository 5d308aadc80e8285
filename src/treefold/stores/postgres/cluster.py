"""What the workers of one journal share: each other, drives, limits and notifications."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from treefold.core.cluster import Drives, Members, SharedLimits, Subscription
from treefold.stores.postgres.signals import Listener


@dataclass(slots=True, frozen=True)
class PostgresCluster:
    """The ``cluster`` of a ``PostgresStore``."""

    members: Members
    drives: Drives
    limits: SharedLimits
    listener: Listener

    def listen(
        self,
        wake: Callable[[Collection[int]], None],
        *,
        posted: Callable[[Collection[int]], None] | None = None,
        broadcasts: bool = False,
    ) -> Subscription:
        return self.listener.subscribe(wake, posted, broadcasts=broadcasts)
