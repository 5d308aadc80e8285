"""The stack of a node: the calls that lead to it, as a debugger shows them."""

from treefold.core.frames import Frame
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import upwards


def frames_to(node: CallNode) -> list[Frame]:
    """Return the calls from the top-level one to *node*."""
    return [one.record.frame for one in reversed(upwards(node))]


def stack_through(node: CallNode) -> list[Frame]:
    """Return the calls from the top-level one through *node* to what it waits for now."""
    while (below := _current(node)) is not None:
        node = below
    return frames_to(node)


def _current(node: CallNode) -> CallNode | None:
    if isinstance(node.waiting_on, CallNode):
        return node.waiting_on
    return next((child for child in reversed(node.children) if not child.state.final), None)
