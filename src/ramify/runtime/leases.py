"""How many requests to models may be under way, and who may make the next.

A lease allows one request at a time. It is taken at the first request of a top-level call and kept
until that ends, so that the calls of one tree follow each other quickly and find their prompts in
the caches; calls below use the lease of those above. Whoever uses it keeps it until it has ended:
calls beside it that run at the same time need leases of their own. Who waits for a person gives it
up.

A tree is on one loop, and so are its leases; only the pool is shared between loops.
"""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from ramify.core.errors import InvalidValueError
from ramify.core.provider import Provider
from ramify.runtime.node import CallNode
from ramify.runtime.walk import upwards


class Waiter:
    """Somebody who wants a place, and where to tell him."""

    __slots__ = ("future", "node")

    def __init__(self, node: CallNode | None = None) -> None:
        self.node = node
        self.future: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()

    def give(self, lease: "Lease | None") -> None:
        """Tell him, on his own loop, that he has a place; None: one of the pool's."""
        if not self.future.done():
            self.future.set_result(lease)


class Pool:
    """A number of places, given in the order in which they were asked for, on any loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = size
        self._mutex = threading.Lock()
        self._queue: dict[Waiter, None] = {}  # in order, and quick to leave
        self.leases: set[Lease] = set()

    @property
    def is_full(self) -> bool:
        """Whether who wants a place has to wait."""
        return not self._free

    def try_take(self) -> bool:
        """Take a place if one is free."""
        with self._mutex:
            if self._free:
                self._free -= 1
                return True
        lost = [lease for lease in tuple(self.leases) if lease.is_lost()]
        for lease in lost:
            lease.close()
        return bool(lost) and self.try_take()

    async def take(self) -> None:
        """Take a place, having waited for it if need be."""
        if not self.try_take():
            await self.wait(Waiter())

    async def wait(self, waiter: Waiter) -> "Lease | None":
        """Wait for a place, or for the lease that *waiter* is given instead."""
        with self._mutex:
            if self._free:
                self._free -= 1
                return None
            self._queue[waiter] = None
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if not self.withdraw(waiter) and waiter.future.done() and not waiter.future.cancelled():
                lease = waiter.future.result()  # it was given in the very last moment
                if lease is None:
                    self.put_back()
            raise

    def withdraw(self, waiter: Waiter) -> bool:
        """Take *waiter* out of the queue; False if a place was given to him already."""
        with self._mutex:
            if waiter not in self._queue:
                return False
            del self._queue[waiter]
            return True

    def put_back(self) -> None:
        """Give a place back: to who has waited longest."""
        with self._mutex:
            while self._queue:
                waiter = next(iter(self._queue))
                del self._queue[waiter]
                with suppress(RuntimeError):  # its loop has closed: try the next
                    waiter.future.get_loop().call_soon_threadsafe(self._hand_over, waiter)
                    return
            self._free += 1

    def _hand_over(self, waiter: Waiter) -> None:
        if waiter.future.cancelled():
            self.put_back()
        else:
            waiter.give(None)


class Limits:
    """Bounds on how many requests to models are under way at the same time.

    One object may serve several runtimes; those that are given none share one of 8 requests.

    Args:
        concurrent_requests: all together.
        per_provider: of each provider named.

    Example:
        >>> from ramify import Limits, Provider, Runtime
        >>> with Runtime(limits=Limits(2, per_provider={Provider.Anthropic: 1})) as runtime:
        ...     runtime.limits.concurrent_requests
        2
    """

    def __init__(
        self, concurrent_requests: int = 8, *, per_provider: Mapping[Provider, int] | None = None
    ) -> None:
        if not isinstance(per_provider, Mapping | None):
            raise InvalidValueError(f"per_provider goes by Provider: not {per_provider!r}")
        if unknown := [name for name in per_provider or {} if name not in list(Provider)]:
            raise InvalidValueError(f"per_provider goes by Provider, which {unknown} are not")
        sizes = {"concurrent_requests": concurrent_requests, **(per_provider or {})}
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise InvalidValueError(f"{name}={size!r} would let no request through")
        self.concurrent_requests = concurrent_requests
        self.pool = Pool(concurrent_requests)
        self.pools = {Provider(name): Pool(size) for name, size in (per_provider or {}).items()}


DEFAULT_LIMITS = Limits()


class Lease:
    """The right to one request at a time, held for a node and all below it."""

    def __init__(self, pool: Pool, holder: CallNode) -> None:
        self._pool = pool
        self._holder = holder
        self._users: list[CallNode] = [holder]  # each below the one before; the last may ask
        self._open = True
        pool.leases.add(self)
        holder.tree.leases[holder] = self
        holder.when_ended(self.close)

    @property
    def user(self) -> CallNode:
        """The node that uses it; those below that one may, too."""
        return self._users[-1]

    def use(self, node: CallNode) -> None:
        """Keep it for *node* until that has ended."""
        if self._users[-1] is not node:
            self._users.append(node)
            node.when_ended(partial(self._left_by, node))

    def _left_by(self, node: CallNode) -> None:
        if node not in self._users:
            return
        del self._users[self._users.index(node) :]
        for waiter in tuple(node.tree.lease_waiters):
            assert waiter.node is not None  # only nodes wait for leases
            if self.user in upwards(waiter.node) and self._pool.withdraw(waiter):
                self.use(waiter.node)
                waiter.give(self)
                return
        if any(self.user in upwards(one) for one in node.tree.paused):
            self.close()  # as who waits for a person would have done, had it not been in use

    def close(self) -> None:
        """Give it up."""
        if self._open:
            self._open = False
            self._pool.leases.discard(self)
            self._holder.tree.leases.pop(self._holder, None)
            self._holder.wake_no_more(self.close)
            self._users = [self._holder]
            self._pool.put_back()

    def is_lost(self) -> bool:
        """Whether its loop was closed with the call under way, which will never end then."""
        return self._open and self._holder.home.loop.is_closed()


def usable_lease(node: CallNode) -> Lease | None:
    """Return the lease with which *node* may make a request, if there is one."""
    above = upwards(node)
    for one in above:
        lease = node.tree.leases.get(one)
        if lease is not None and lease.user in above:
            return lease
    return None


def give_up_lease(node: CallNode) -> None:
    """Let others make requests while *node* waits; whoever needs a lease then takes a new one."""
    while (lease := usable_lease(node)) is not None:
        lease.close()


async def take_lease(node: CallNode, pool: Pool) -> None:
    """Have *node* hold a lease or use one from above, having waited if need be."""
    lease = usable_lease(node)
    if lease is None and not pool.try_take():
        lease = await _wait_for_lease(node, pool)
    if lease is None:
        lease = Lease(pool, _holder_for(node))
    lease.use(node)


async def _wait_for_lease(node: CallNode, pool: Pool) -> Lease | None:
    """Wait for a place of the pool, or for a lease of the tree, which may only get one later."""
    waiter = Waiter(node)
    node.tree.lease_waiters[waiter] = None
    try:
        return await pool.wait(waiter)
    finally:
        del node.tree.lease_waiters[waiter]


def _holder_for(node: CallNode) -> CallNode:
    """Return who holds a new lease: the top-level call, or a branch beside one that has it."""
    below = node
    for one in upwards(node):
        if one in node.tree.leases:
            return below
        below = one
    return below
