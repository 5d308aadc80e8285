"""A call of this process as something whose end can be waited for in any thread."""

from collections.abc import Callable
from contextlib import suppress

from treefold.core.errors import ClosedError
from treefold.runtime.calls.node import CallNode


class LiveCall:
    """Tells a stream of events when the call has ended.

    Args:
        node: the call.
        current: returns the node that stands for it now; a worker may have taken it over.
    """

    def __init__(self, node: CallNode, current: Callable[[int], CallNode | None]) -> None:
        self._node = node
        self._current = current
        self._waiting: dict[Callable[[], None], CallNode] = {}

    @property
    def has_ended(self) -> bool:
        return self._find().has_ended

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* when the call has ended."""
        node = self._waiting[wake] = self._find()
        node.loop_handle.run_soon(node.add_end_callback, wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        if (node := self._waiting.pop(wake, None)) is not None:
            with suppress(ClosedError):
                node.loop_handle.run_soon(node.remove_end_callback, wake)

    def _find(self) -> CallNode:
        return self._current(self._node.id) or self._node
