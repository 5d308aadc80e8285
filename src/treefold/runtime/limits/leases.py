"""Leases: the right to send requests to models.

A lease allows one request at a time. A top-level call takes it at its first request and holds it
until it ends, so that the calls of one tree follow each other quickly and find their prompts in the
providers' caches; calls below use the lease of a call above. A call that uses a lease keeps it
until the call ends: siblings that run at the same time need leases of their own. A call that waits
for a person, or for a call that another process runs, gives its lease up.

A tree is on one loop, and so are its leases; only the pool is shared between loops.
"""

from collections.abc import Sequence
from functools import partial

from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import upwards
from treefold.runtime.limits.slots import SlotPool, SlotRequest


class Leases:
    """The leases of one tree."""

    def __init__(self) -> None:
        self.by_holder: dict[CallNode, Lease] = {}
        self.waiters: dict[SlotRequest, CallNode] = {}  # in order

    def usable(self, above: Sequence[CallNode]) -> "Lease | None":
        """Return the lease with which a node may send a request; *above* is ``upwards(node)``."""
        for one in above:
            lease = self.by_holder.get(one)
            if lease is not None and lease.user in above:
                return lease
        return None

    def holder_for(self, above: Sequence[CallNode]) -> CallNode:
        """Return the holder of a new lease: the top-level call, or the highest below a holder."""
        below = above[0]
        for one in above:
            if one in self.by_holder:
                break
            below = one
        return below


class Lease:
    """The right to one request at a time, held for a node and all below it."""

    def __init__(self, pool: SlotPool, leases: Leases, holder: CallNode) -> None:
        self._pool = pool
        self._holder = holder
        # Each is below the one before it; the last one may send requests.
        self._users: list[CallNode] = [holder]
        self._open = True
        pool.leases.add(self)
        self._leases = leases
        leases.by_holder[holder] = self
        holder.add_end_callback(self.close)

    @property
    def user(self) -> CallNode:
        """The node that uses it; nodes below that one may use it, too."""
        return self._users[-1]

    def use(self, node: CallNode) -> None:
        """Let *node* use it until that node has ended."""
        if self._users[-1] is not node:
            self._users.append(node)
            node.add_end_callback(partial(self._left_by, node))

    def _left_by(self, node: CallNode) -> None:
        if node not in self._users:
            return
        del self._users[self._users.index(node) :]
        for waiter, waiting in tuple(self._leases.waiters.items()):
            if self.user in upwards(waiting) and self._pool.withdraw(waiter):
                self.use(waiting)
                waiter.give(self)
                return
        if any(self.user in upwards(one) for one in node.tree.paused):
            # The paused node would have given it up at the time, but the lease was in use.
            self.close()

    def close(self) -> None:
        """Give it up, and return its slot to the pool."""
        if self._open:
            self._open = False
            self._pool.leases.discard(self)
            self._leases.by_holder.pop(self._holder, None)
            self._holder.remove_end_callback(self.close)
            self._users = [self._holder]
            self._pool.put_back()

    def is_lost(self) -> bool:
        """Whether its loop was closed while the call was under way, so that it will never end."""
        return self._open and self._holder.loop_handle.loop.is_closed()


def usable_lease(node: CallNode) -> Lease | None:
    """Return the lease with which *node* may send a request, or None."""
    return node.tree.part(Leases).usable(upwards(node))


def give_up_lease(node: CallNode) -> None:
    """Close the leases that *node* can use, so that others may send requests while it waits.

    The next request takes a new lease.
    """
    leases, above = node.tree.part(Leases), upwards(node)
    while (lease := leases.usable(above)) is not None:
        lease.close()


def close_leases(node: CallNode) -> None:
    """Close all leases of the tree of *node*: nothing in it sends requests in this process."""
    for lease in tuple(node.tree.part(Leases).by_holder.values()):
        lease.close()


async def take_lease(node: CallNode, pool: SlotPool) -> None:
    """Let *node* use a lease from above or take a new one, waiting for a slot if need be."""
    leases, above = node.tree.part(Leases), upwards(node)
    lease = leases.usable(above)
    if lease is None and not pool.try_take():
        lease = await _wait_for_lease(node, leases, pool)
    if lease is None:
        lease = Lease(pool, leases, leases.holder_for(above))
    lease.use(node)


async def _wait_for_lease(node: CallNode, leases: Leases, pool: SlotPool) -> Lease | None:
    """Wait for a slot of the pool (None) or for a lease of the same tree that becomes usable."""
    waiter = SlotRequest()
    leases.waiters[waiter] = node
    try:
        return await pool.wait(waiter)
    finally:
        del leases.waiters[waiter]
