"""What must hold in every tree, whatever happens: a reference that knows no runtime.

Everything here reads views, nodes and what models were shown, and returns what is wrong as
sentences.
"""

from collections.abc import Iterator, Sequence, Set as AbstractSet

from treefold import (
    AgentNode,
    Node,
    NodeState,
    NodeView,
    Question,
    ToolResult,
    ToolUse,
    TranscriptPart,
)

HELD = "held"  # how the reason of each pause() begins

W, R, P = NodeState.Waiting, NodeState.Running, NodeState.Paused
S, E, C = NodeState.Success, NodeState.Error, NodeState.Canceled

TABLE = {(W, R), (W, C), (R, P), (P, R), (R, S), (R, E), (R, C), (P, E), (P, C)}
FINAL = {S, E, C}


def all_in(view: NodeView) -> Iterator[NodeView]:
    """Give a view and all below it, each before those below."""
    yield view
    for child in view.children:
        yield from all_in(child)


class Witness:
    """Sees every view of a tree, one event after the other."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._states: dict[int, NodeState] = {}
        self._number = 0

    def see(self, root: NodeView) -> None:
        """Compare a view with the one before."""
        if root.update_seqnum <= self._number:
            self.faults.append(f"view {root.update_seqnum} comes after {self._number}")
        self._number = root.update_seqnum
        for view in all_in(root):
            before = self._states.get(view.id, W)
            if view.state is not before and (before, view.state) not in TABLE:
                self.faults.append(f"node {view.path} went from {before} to {view.state}")
            self._states[view.id] = view.state
            self.faults += _unlike_its_state(view)


def _unlike_its_state(view: NodeView) -> Iterator[str]:
    path, state = view.path, view.state
    if (view.ended_at is not None) != (state in FINAL):
        yield f"node {path} is {state} and ended at {view.ended_at}"
    if state in FINAL and (view.exception is None) != (state is S):
        yield f"node {path} is {state} with {view.exception}"
    if state in FINAL:
        yield from (
            f"node {child.path} is {child.state} although its caller has ended"
            for child in view.children
            if child.state not in FINAL
        )
        yield from (f"node {path} has ended and asks {q}" for q in view.questions)


# Whenever everything has come to rest


def at_rest(root: NodeView, busy: AbstractSet[int], *, crowded: bool) -> list[str]:
    """Return which nodes are not what they have to be when nothing happens any more.

    Args:
        root: the top-level call.
        busy: the nodes that hang, in their own code or in a request.
        crowded: whether something hangs anywhere, so that others may wait for their turn.
    """
    return list(_at_rest(root, busy, crowded=crowded, held=False))


def _at_rest(view: NodeView, busy: AbstractSet[int], *, crowded: bool, held: bool) -> Iterator[str]:
    above = held
    held = held or any(q.text.startswith(HELD) for q in view.questions)
    if view.state not in FINAL:
        yield from _stands_still(view, busy, crowded=crowded, held=held, above=above)
    for child in view.children:
        yield from _at_rest(child, busy, crowded=crowded, held=held)


def _stands_still(
    view: NodeView, busy: AbstractSet[int], *, crowded: bool, held: bool, above: bool
) -> Iterator[str]:
    asks = any(not q.text.startswith(HELD) for q in view.questions)
    keeps_a_call = any(child.state is W for child in view.children)
    idle = view.id not in busy and all(child.state in FINAL for child in view.children)
    queued = crowded and idle and view.model is not None
    if view.state is W:
        if not above:
            yield f"node {view.path} does not start"
    elif view.state is P:
        if not (asks or (held and (keeps_a_call or idle))):
            yield f"node {view.path} is paused, and nobody knows why: {view.status}"
    elif asks or (held and keeps_a_call):
        yield f"node {view.path} waits for a person, and is {view.state}"
    elif idle and not queued:
        yield f"node {view.path} is stuck: {view.status}"


def asks_while_held(node: Node, questions: Sequence[Question]) -> list[str]:
    """Return it if *node* makes a request although it, or a call above it, was paused."""
    held = {q.node_id for q in questions if q.text.startswith(HELD)}
    one: Node | None = node
    while one is not None:
        if one.id in held:
            return [f"{node} makes a request although {one} is paused"]
        one = one.parent
    return []


# What nodes and views say of the same call


def unlike(node: Node, view: NodeView) -> list[str]:
    """Return where a node and its view differ, at any depth."""
    children = [
        child
        for entry in node.get_children()
        for child in (entry if isinstance(entry, list) else [entry])
    ]
    transcript = tuple(node.get_transcript()) if isinstance(node, AgentNode) else ()
    model = node.model if isinstance(node, AgentNode) else None
    pairs = {
        "id": (node.id, view.id),
        "path": (node.path, view.path),
        "function": (node.function.name, view.fn),
        "state": (node.state, view.state),
        "inputs": (node.inputs, view.inputs),
        "outputs": (node.outputs, view.outputs),
        "sequence": (node.sequence, view.sequence),
        "model": (model, view.model),
        "usage": (node.usage, view.usage),
        "total usage": (node.total_usage, view.total_usage),
        "cost": (node.cost, view.cost),
        "total cost": (node.total_cost, view.total_cost),
        "transcript": (transcript, view.transcript),
        "times": ((node.started_at, node.ended_at), (view.started_at, view.ended_at)),
        "children": (sorted(c.id for c in children), [c.id for c in view.children]),
    }
    found = [
        f"{what} of node {node.path}: {ours!r}, but in its view {theirs!r}"
        for what, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    found += _out_of_order(node)
    by_id = {child.id: child for child in view.children}
    for child in children:
        found += unlike(child, by_id[child.id]) if child.id in by_id else []
    return found


def _out_of_order(node: Node) -> Iterator[str]:
    entries = [e if isinstance(e, list) else [e] for e in node.get_children()]
    numbers = [{child.sequence for child in entry} for entry in entries]
    if numbers != [{n} for n in range(1, len(numbers) + 1)]:
        yield f"the calls of node {node.path} are numbered {numbers}"


# When it is over


def not_over(node: Node) -> list[str]:
    """Return what is left to do in a tree that has ended."""
    found: list[str] = []
    if node.state not in FINAL or node.ended_at is None:
        return [f"node {node.path} is {node.state}, ended at {node.ended_at}"]
    total = node.usage
    for entry in node.get_children():
        for child in entry if isinstance(entry, list) else [entry]:
            found += not_over(child)
            total += child.total_usage
            if child.ended_at is not None and child.ended_at > node.ended_at:
                found.append(f"node {child.path} outlived its caller")
    if total != node.total_usage:
        found.append(f"node {node.path} took {node.total_usage}, and its parts {total}")
    return found


def unanswered_calls(transcript: Sequence[TranscriptPart]) -> list[str]:
    """Return which calls that a model asked for are not followed by one result each, in order."""
    found: list[str] = []
    asked: list[str] = []
    for part in [*transcript, None]:
        if isinstance(part, ToolResult):
            if not asked or asked.pop(0) != part.tool_use_id:
                found.append(f"{part} is out of order")
        elif isinstance(part, ToolUse):
            asked.append(part.id)
        elif asked:
            found.append(f"{asked} have no result")
            asked = []
    return found
