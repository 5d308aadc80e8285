"""Calls of an earlier process that code of this one makes again."""

from collections.abc import Mapping
from typing import Any

from treefold.core.call_request import CallRequest
from treefold.core.events import ArgumentsEdited, CallResumed
from treefold.core.fact import replace
from treefold.core.states import NodeState
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stage import Stage


def resume_as(node: CallNode, request: CallRequest) -> None:
    """Attach a new request to a recovered call, which continues from its recorded state."""
    node.waiting_on = None
    if node.record.state is NodeState.Paused:
        node.tree.publish(CallResumed(node.id, node.tree.now()))
    if request.tool_use_id is not None and not node.has_ended and _differs(node, request.args):
        # Hooks have been asked again, about the edited ones if they were edited.
        node.tree.publish(ArgumentsEdited(node.id, request.args))
    elif not node.record.edited:
        # The recorded ones lack objects that could not be serialized.
        node.record.inputs = request.args
    node.repeated = len(node.record.values)
    node.attach(request)
    if not node.has_ended:
        node.asked_for = request.sink is not None


def send_again(node: CallNode) -> None:
    """Have the values of a call that has ended sent to the sink of its request, if it has one."""
    if node.request.sink is not None and node.parent is not None:
        node.advance(Stage.Resending)


def _differs(node: CallNode, args: Mapping[str, Any]) -> bool:
    """Whether these are other arguments than the recorded ones."""
    journal = node.tree.journal
    return journal is not None and journal.as_written(args) != node.record.inputs


def restore_outputs(node: CallNode, value: Any) -> None:
    """Replace the recorded value of the call by *value*, restored to its type."""
    if (ended := node.record.ended) is not None and value is not ended.outputs:
        node.record.ended = node.conclusion = replace(ended, outputs=value)
