"""Who may make the next request to a model.

A lease allows one request at a time. It is taken at the first request of a top-level call and kept
until that ends, so that the calls of one tree follow each other quickly and find their prompts in
the caches; calls below use the lease of those above. Whoever uses it keeps it until it has ended:
calls beside it that run at the same time need leases of their own. Who waits for a person gives it
up.

A tree is on one loop, and so are its leases; only the pool is shared between loops.
"""

from functools import partial

from treefold.runtime.node import CallNode
from treefold.runtime.slots import SlotPool, SlotRequest
from treefold.runtime.walk import upwards


class Lease:
    """The right to one request at a time, held for a node and all below it."""

    def __init__(self, pool: SlotPool, holder: CallNode) -> None:
        self._pool = pool
        self._holder = holder
        self._users: list[CallNode] = [holder]  # each below the one before; the last may ask
        self._open = True
        pool.leases.add(self)
        holder.tree.leases[holder] = self
        holder.add_end_callback(self.close)

    @property
    def user(self) -> CallNode:
        """The node that uses it; those below that one may, too."""
        return self._users[-1]

    def use(self, node: CallNode) -> None:
        """Keep it for *node* until that has ended."""
        if self._users[-1] is not node:
            self._users.append(node)
            node.add_end_callback(partial(self._left_by, node))

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
            self._holder.remove_end_callback(self.close)
            self._users = [self._holder]
            self._pool.put_back()

    def is_lost(self) -> bool:
        """Whether its loop was closed with the call under way, which will never end then."""
        return self._open and self._holder.loop_handle.loop.is_closed()


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


async def take_lease(node: CallNode, pool: SlotPool) -> None:
    """Have *node* hold a lease or use one from above, having waited if need be."""
    lease = usable_lease(node)
    if lease is None and not pool.try_take():
        lease = await _wait_for_lease(node, pool)
    if lease is None:
        lease = Lease(pool, _holder_for(node))
    lease.use(node)


async def _wait_for_lease(node: CallNode, pool: SlotPool) -> Lease | None:
    """Wait for a place of the pool, or for a lease of the tree, which may only get one later."""
    waiter = SlotRequest(node)
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
