"""``KeyedCalls``: finds top-level calls by their keys, in memory and in the store."""

from collections.abc import Callable
from weakref import WeakValueDictionary

from treefold.core.call_keys import of_continuation
from treefold.core.store import Store
from treefold.runtime.calls.node import CallNode


class KeyedCalls:
    """The top-level calls of one runtime, by their keys.

    Args:
        find: returns the call with this id, which is in the store.
        claim: returns whether a call has its key, or another process was quicker.
        store: the journal, if there is one.
    """

    def __init__(
        self,
        find: Callable[[int], CallNode],
        claim: Callable[[CallNode], bool],
        store: Store | None,
    ) -> None:
        self._store = store
        self._find = find
        self._claim = claim
        # As long as they are in memory: only these may not be written yet.
        self._known: WeakValueDictionary[str, CallNode] = WeakValueDictionary()

    def loaded(self, key: str) -> CallNode | None:
        """Return the call with this *key* if it is in memory, otherwise None.

        Raises:
            StoreError: it is not written, and cannot be now.
        """
        node = self._known.get(key)
        if node is not None and not self._claim(node):
            self.forget(node)
            return None
        return node

    def find(self, key: str) -> CallNode | None:
        """Return the call with this *key*, or None.

        Raises:
            StoreError: its tree cannot be read.
        """
        node = self.loaded(key)
        if node is not None or (tree := self._id_of(key)) is None:
            return node
        return self._find(tree)

    def newest(self, root: CallNode) -> CallNode:
        """Return the call that continues *root*, or the one that continues that, and so on."""
        newest = root.id
        # There may be many: only the last is read.
        while (tree := self._id_of(of_continuation(newest))) is not None:
            newest = tree
        return root if newest == root.id else self._find(newest)

    def _id_of(self, key: str) -> int | None:
        if (node := self.loaded(key)) is not None:
            return node.id
        return None if self._store is None else self._store.find_key(key)

    def add(self, root: CallNode, key: str = "") -> None:
        """Add a call by this *key*, or else by its own."""
        self._known[key or root.record.requested.key] = root

    def forget(self, root: CallNode) -> None:
        """Forget a call that is deleted, or whose key another process has got."""
        requested = root.record.requested
        keys = [requested.key]
        if requested.continues is not None:
            keys.append(of_continuation(requested.continues))
        for key in keys:
            # Another process may have been quicker, whose call has it.
            if self._known.get(key) is root:
                del self._known[key]
