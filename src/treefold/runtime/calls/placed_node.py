"""The place of a call in its tree: its parent, its children, and the keys of its calls."""

from typing import Any, Final

from treefold.core.call_keys import named, of_content
from treefold.core.call_request import CallRequest
from treefold.core.errors import ClosedError, InvalidValueError
from treefold.core.function import Node, RunContext
from treefold.runtime.calls.awaited_node import AwaitedNode
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.trees.bags import SessionBag
from treefold.runtime.trees.tree import Tree

_NONE: Final[dict[str, Any]] = {}


class PlacedNode(AwaitedNode):
    """A node with children, and a parent unless it is at top level.

    In a journal a call is identified by its key among the calls of its parent: the key that the
    caller gave, or else one made from the function, the arguments and a count of repetitions. So
    calls may be made again in any order.
    """

    __slots__ = (
        "_closing",
        "_failures",
        "_keys",
        "_next_sequence",
        "_parent",
        "_running",
        "children",
        "id",
        "index",
        "sequence",
        "tree",
        "unclaimed",
    )

    def __init__(self, loop_handle: LoopHandle, id: int, tree: Tree, parent: Any) -> None:
        super().__init__(loop_handle)
        self.id = id
        self.tree = tree
        self._parent: Any = parent  # a node of the subclass, or None
        self.children: list[Any] = []
        self._running = 0  # how many children have not ended
        self._failures = 0  # how many children have failed
        self._next_sequence = 1
        self._closing = False  # its children are being cancelled, and it accepts no more
        self._keys: dict[str, int] | None = None  # how often each key was requested
        # The calls of an earlier process that this one has not made yet, by key. _NONE is shared by
        # all nodes, and replaced before the first insertion.
        self.unclaimed: dict[str, Any] = _NONE

    @property
    def path(self) -> str:
        numbers: list[str] = []
        node: PlacedNode | None = self
        while node is not None:
            numbers.append(str(node.index))
            node = node._parent
        return ".".join(reversed(numbers))

    def get_children(self) -> list[Node | list[Node]]:
        batches: dict[int, list[Node]] = {}
        for child in list(self.children):
            batches.setdefault(child.sequence, []).append(child)
        return [batch if len(batch) > 1 else batch[0] for batch in batches.values()]

    @property
    def bag(self) -> SessionBag:
        """The objects of this node, which live as long as its tree."""
        return self.tree.bag_of(self.id)

    @property
    def _belongs_to_waiters(self) -> bool:
        # A call in a journal outlives its waiters: Ctrl-C cancels the task that awaits it, too, and
        # the next process resumes the call.
        if self._parent is not None or self.tree.journal is not None:
            return False
        asking = RunContext.active.get(None)
        return asking is None or asking is asking.runtime.get_ctx()

    # Its children

    def _take_place(self, tied_with: Node | None) -> None:
        """Become the next child of its parent, or the root of its tree."""
        parent = self._parent
        if parent is None:
            self.index = self.sequence = self.tree.number
            return
        parent._check_open()
        if tied_with is None:
            self.sequence = parent._next_sequence
            parent._next_sequence += 1
        elif isinstance(tied_with, Node) and tied_with.parent is parent:
            self.sequence = tied_with.sequence
        else:
            raise InvalidValueError(
                f"{tied_with!r} was called by another node; only siblings can be tied"
            )
        parent.children.append(self)
        parent._running += 1
        self.index = len(parent.children)

    def _leave_place(self) -> None:
        """Undo ``_take_place``, before the call was published."""
        if (parent := self._parent) is not None:
            parent.children.remove(self)
            parent._running -= 1

    def _take_old_place(self, index: int, sequence: int, key: str, *, ended: bool) -> None:
        """Become the same child of its parent as in the earlier process."""
        self.index, self.sequence = index, sequence
        if (parent := self._parent) is None:
            return
        parent.children.append(self)
        parent._running += not ended
        parent._next_sequence = max(parent._next_sequence, sequence + 1)
        parent._expect(self, key)

    def _expect(self, child: Any, key: str) -> None:
        """Add a call of an earlier process to the unclaimed ones, if it may be made again."""
        if self.may_make_again(key):
            self.unclaimed = {} if self.unclaimed is _NONE else self.unclaimed
            self.unclaimed[key] = child

    def _check_open(self) -> None:
        if self._ended is not None or self._closing:
            raise ClosedError(
                f"{self.function.name} (node {self.path}) has ended and can make no more calls;"
                " await what it starts before it returns"
            )

    # Keys of its calls

    def key_of(self, request: CallRequest) -> str:
        """Return a new key for the call that *request* asks for, unique among its calls."""
        self._keys = {} if self._keys is None else self._keys
        if request.key is None:
            base = self._content_key(request)
        else:
            base = named(request.key)
            if base in self._keys:
                raise InvalidValueError(
                    f"{self.function.name} has made a call with the key {request.key!r} already"
                )
        times = self._keys[base] = self._keys.get(base, 0) + 1
        return base if times == 1 else f"{base} {times}"

    def _content_key(self, request: CallRequest) -> str:
        journal, args = self.tree.journal, request.args
        # The key is compared with those of recorded calls, whose arguments are redacted.
        if journal is not None and journal.redacts:
            args = journal.as_written(args)
        return of_content(request.function.name, request.model, args)

    def may_make_again(self, key: str) -> bool:
        """Whether this call may make the call with this key again when it is resumed."""
        return not self.has_ended

    def claim(self, request: CallRequest) -> Any:
        """Return the recorded call that *request* asks for, or None; sets its ``call_key``."""
        self._check_open()
        request.call_key = self.key_of(request)
        known = self.unclaimed.get(request.call_key)
        if known is None:
            return None
        if known.function.name != request.function.name:
            raise InvalidValueError(
                f"{known!r} has the key {request.key!r}, and is another call; give another key"
            )
        return self.unclaimed.pop(request.call_key)
