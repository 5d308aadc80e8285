"""What requests have to be allowed: slots of limits, and rates.

In a shared store ``ClusterAllowances`` (``cluster/cluster_allowances.py``) keeps them for all
workers together, and otherwise ``LocalAllowances`` for those who share a ``Limits`` object.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from treefold.core.rate import Rate
from treefold.runtime.limits.slots import SlotPool


class TakenSlots(Protocol):
    """One slot of each limit that a request falls under."""

    @property
    def are_kept(self) -> bool:
        """Whether nobody else can have got them since; a request is not sent without them."""
        ...

    def give_back(self) -> None:
        """Let others have them."""
        ...


class Allowances(Protocol):
    """Allows requests; used on event loops, which it never blocks."""

    async def take_slots(
        self, limits: Mapping[str, int], on_wait: Callable[[], None]
    ) -> TakenSlots:
        """Take a slot of each limit, waiting for them.

        *on_wait* is called on the loop if some are not free.
        """
        ...

    async def take_rates(self, rates: Mapping[str, Rate], tokens: int) -> float:
        """Take a request with so many tokens: 0, or after how many seconds to try again."""
        ...

    def charge_rates(self, rates: Collection[str], more: int) -> None:
        """Take more tokens, or put some back if *more* is negative; soon."""
        ...


class LocalAllowances:
    """Keeps limits and rates within one process, for any number of loops and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the buckets and the making of pools
        self._pools: dict[str, SlotPool] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._queues: dict[tuple[str, ...], SlotPool] = {}

    def queue(self, rates: Collection[str]) -> SlotPool:
        """Return the one slot that orders the requests under these rates."""
        with self._lock:
            return self._queues.setdefault(tuple(rates), SlotPool(1))

    async def take_slots(
        self, limits: Mapping[str, int], on_wait: Callable[[], None]
    ) -> TakenSlots:
        with self._lock:
            pools = [self._pools.setdefault(n, SlotPool(size)) for n, size in limits.items()]
        taken = SlotsOfPools()
        try:
            # All take them in the same order, and need nothing else once they have them.
            for pool in pools:
                if not pool.try_take():
                    on_wait()
                    await pool.take()
                taken.pools.append(pool)
        except BaseException:
            taken.give_back()
            raise
        return taken

    async def take_rates(self, rates: Mapping[str, Rate], tokens: int) -> float:
        with self._lock:
            buckets = [self._bucket(name, rate) for name, rate in rates.items()]
            seconds = max((bucket.wait(tokens) for bucket in buckets), default=0.0)
            if not seconds:
                for bucket in buckets:
                    bucket.take(1, tokens)
            return seconds

    def charge_rates(self, rates: Collection[str], more: int) -> None:
        with self._lock:
            for name in rates:
                if (bucket := self._buckets.get(name)) is not None:
                    bucket.take(0, more)

    def _bucket(self, name: str, rate: Rate) -> "_Bucket":
        if name not in self._buckets:
            self._buckets[name] = _Bucket(rate)
        return self._buckets[name]


class SlotsOfPools:
    """Slots of pools in this process."""

    are_kept = True

    def __init__(self, *pools: SlotPool) -> None:
        self.pools = list(pools)

    def give_back(self) -> None:
        while self.pools:
            self.pools.pop().put_back()


class _Bucket:
    """What may be sent just now at one rate; the store's function does the same."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._requests = rate.most_requests
        self._tokens = rate.most_tokens
        self._at = time.monotonic()

    def wait(self, tokens: int) -> float:
        """Return the seconds until a request with so many tokens may be sent."""
        rate, now = self._rate, time.monotonic()
        minutes, self._at, seconds = (now - self._at) / 60, now, 0.0
        if rate.rpm is not None:
            self._requests = min(rate.most_requests, self._requests + rate.rpm * minutes)
            seconds = (1 - self._requests) * 60 / rate.rpm
        if rate.tpm is not None:
            self._tokens = min(rate.most_tokens, self._tokens + rate.tpm * minutes)
            missing = min(tokens, rate.most_tokens) - self._tokens
            seconds = max(seconds, missing * 60 / rate.tpm)
        return max(0.0, seconds)

    def take(self, requests: int, tokens: int) -> None:
        """Take requests and tokens; a large request leaves a debt."""
        self._requests -= requests
        self._tokens -= tokens
