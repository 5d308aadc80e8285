"""Which calls below an agent came of which parts of its conversation."""

from collections import Counter, defaultdict, deque

from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.views import NodeView


def calls_of(view: NodeView) -> list[int | None]:
    """Return for each part of the transcript the call below that it asks for or tells of.

    A provider may use an id again, and a call that failed may have been made again.
    """
    made: defaultdict[tuple[str | None, str], deque[int]] = defaultdict(deque)
    for child in view.children:
        made[child.tool_use_id, child.fn].append(child.id)
    asked = Counter((part.id, part.name) for part in view.transcript if isinstance(part, ToolUse))
    told: defaultdict[str, deque[int | None]] = defaultdict(deque)
    found: list[int | None] = []
    for part in view.transcript:
        node: int | None = None
        if isinstance(part, ToolUse):
            key = (part.id, part.name)
            asked[key] -= 1
            if part.fault is None and made[key]:
                node = made[key].popleft() if asked[key] else made[key].pop()
            told[part.id].append(node)
        elif isinstance(part, ToolResult) and told[part.tool_use_id]:
            node = told[part.tool_use_id].popleft()
        found.append(node)
    return found
