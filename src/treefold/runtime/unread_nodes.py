"""Top-level calls of trees that nothing runs: each tree is read when it is looked into."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from treefold.core.call_request import CallRequest
from treefold.core.exchange import Exchange
from treefold.core.function import Function
from treefold.core.record import CallRecord
from treefold.core.states import NodeState
from treefold.core.store import TreeRow
from treefold.core.transcript import TranscriptPart
from treefold.runtime.calls.node import CallNode, CodeNode
from treefold.runtime.conversations.agent_node import AgentNode
from treefold.runtime.durable.loader import Loader
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.services import Services
from treefold.runtime.trees.tree import Tree

_READ: Final = frozenset(CallNode.__slots__)


class UnreadTree:
    """The row of a tree, and what reads the tree and completes the node."""

    __slots__ = ("read", "row")

    def __init__(self, row: TreeRow, read: Callable[[int], object]) -> None:
        self.row = row
        self.read = read


class Unread:
    """What is known of a node before its tree is read, which happens when anything else is used."""

    __slots__ = ()

    id: int
    function: Function
    unread: UnreadTree

    def __repr__(self) -> str:
        kind = type(self).__bases__[-1].__name__
        return f"<{kind} {self.path} {self.function.name} {self.state}>"

    @property
    def state(self) -> NodeState:
        return self.unread.row.state

    @property
    def path(self) -> str:
        return str(self.unread.row.number)

    @property
    def index(self) -> int:
        return self.unread.row.number

    @property
    def sequence(self) -> int:
        return self.unread.row.number

    @property
    def tool_use_id(self) -> str | None:
        return None

    @property
    def ended_at(self) -> datetime | None:
        ended = self.unread.row.ended
        return None if ended is None else datetime.fromtimestamp(ended, UTC)

    # These two differ for agents, and which it is may not be known before.

    @property
    def exchanges(self) -> Sequence[Exchange]:
        return self._completed().exchanges

    def get_transcript(self) -> list[TranscriptPart]:
        return self._completed().get_transcript()

    def _completed(self) -> CallNode:
        self.unread.read(self.id)
        assert isinstance(self, CallNode)
        return self

    # Python calls it for attributes that are not set.
    def __getattr__(self, name: str) -> Any:
        if name not in _READ:
            raise AttributeError(f"{self!r} has no attribute {name!r}", name=name, obj=self)
        self.unread.read(self.id)
        return getattr(self, name)


class UnreadCodeNode(Unread, CodeNode):
    """The call of code, or of a function that this program does not have."""

    __slots__ = ()


class UnreadAgentNode(Unread, AgentNode):
    """The call of an agent."""

    __slots__ = ()


class UnreadTrees:
    """Lists finished and parked trees of a journal, on the runtime's loop.

    Args:
        loaded: returns the node with an id if it is in memory.
        read: reads the tree of the node with an id, and so completes the node.
    """

    def __init__(
        self,
        loader: Loader,
        loaded: Callable[[int], CallNode | None],
        read: Callable[[int], object],
    ) -> None:
        self._loader = loader
        self._loaded = loaded
        self._read = read

    def list(self, rows: Iterable[TreeRow]) -> list[CallNode]:
        """Return the top-level call of each tree."""
        return [
            self._loaded(row.id) or self._loader.unread.get(row.id) or self._new(row)
            for row in rows
        ]

    def _new(self, row: TreeRow) -> CallNode:
        function = self._loader.function_of(row.function, is_agent=False)
        kind = UnreadAgentNode if function.is_agent else UnreadCodeNode
        node = kind.__new__(kind)
        node.id, node.function, node.parent = row.id, function, None
        node.unread = UnreadTree(row, self._read)
        self._loader.unread[row.id] = node
        return node


def complete(
    node: CallNode,
    record: CallRecord,
    request: CallRequest,
    tree: Tree,
    loop_handle: LoopHandle,
    services: Services,
) -> CallNode:
    """Make *node*, which was unread, the top-level call of its *tree*; return it."""
    given: dict[str, Any] = {"parent": None, "tree": tree, "loop_handle": loop_handle}
    if not request.function.is_agent:
        CallNode.__init__(node, record, request, board=services.board, **given)
        node.__class__ = CodeNode
        return node
    if not isinstance(node, AgentNode):
        # Its function is not known here, and only what is recorded says that it is an agent.
        node.__class__ = UnreadAgentNode
    assert isinstance(node, AgentNode)
    AgentNode.__init__(node, record, request, services=services, **given)
    # At last, so that another thread either finds what it looks for or waits for the reading.
    node.__class__ = AgentNode
    return node
