"""A call of this process as something whose end can be waited for in any thread."""

from collections.abc import Callable
from contextlib import suppress

from treefold.core.errors import ClosedError
from treefold.runtime.calls.node import CallNode


class LiveCall:
    """Tells a stream of events when the call has ended.

    Args:
        node: the call.
        find: returns the node that is found by its id, which is another if this worker has taken
            the call over or given it up. A program may use either.
    """

    def __init__(self, node: CallNode, find: Callable[[int], CallNode | None]) -> None:
        self._node = node
        self._find = find
        self._waiting: dict[Callable[[], None], CallNode] = {}

    @property
    def has_ended(self) -> bool:
        return self._next_to_end() is None

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* when the call has ended."""
        node = self._waiting[wake] = self._next_to_end() or self._node
        node.loop_handle.run_soon(node.add_end_callback, wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        if (node := self._waiting.pop(wake, None)) is not None:
            with suppress(ClosedError):
                node.loop_handle.run_soon(node.remove_end_callback, wake)

    def _next_to_end(self) -> CallNode | None:
        """Return a node of the call that has not ended, or None."""
        if not self._node.has_ended:
            return self._node
        found = self._find(self._node.id)
        return None if found is None or found.has_ended else found
