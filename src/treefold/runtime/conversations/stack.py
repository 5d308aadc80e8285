"""The stack of a node: the calls that lead to it, as a debugger shows them."""

from treefold.core.frames import Frame, short_arguments
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import upwards
from treefold.runtime.conversations.agent_node import AgentNode


def frames_to(node: CallNode) -> list[Frame]:
    """Return the calls from the top-level one to *node*."""
    return [_frame(one) for one in reversed(upwards(node))]


def stack_through(node: CallNode) -> list[Frame]:
    """Return the calls from the top-level one through *node* to what it waits for now."""
    while (below := _current(node)) is not None:
        node = below
    return frames_to(node)


def _current(node: CallNode) -> CallNode | None:
    if isinstance(node.waiting_on, CallNode):
        return node.waiting_on
    return next((child for child in reversed(node.children) if not child.state.final), None)


def _frame(node: CallNode) -> Frame:
    is_agent = isinstance(node, AgentNode)
    return Frame(
        function=node.function.name,
        kind="agent" if is_agent else "code",
        node_id=node.id,
        path=node.path,
        state=node.state.value,
        arguments=short_arguments(node.inputs),
        model=node.model if is_agent else None,
        responses=node.responses if is_agent else 0,
        parts=len(node.get_transcript()) if is_agent else 0,
        usage=node.total_usage,
        cost=node.total_cost,
    )
