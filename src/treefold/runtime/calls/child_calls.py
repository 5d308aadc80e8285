"""``ChildCalls``: the calls that one call has made, and their keys.

In a journal a call is identified by its key among the calls of its parent: the key that the caller
gave, or else one made from the function, the arguments and a count of repetitions. So calls may be
made again in any order.
"""

from typing import Generic, TypeVar

from treefold.core.call_keys import named
from treefold.core.call_request import CallRequest
from treefold.core.errors import InvalidValueError
from treefold.core.function import Node

N = TypeVar("N", bound=Node)


class ChildCalls(Generic[N]):
    """The children of one node; changed on the runtime's loop only."""

    __slots__ = ("_keys", "closed", "failed", "next_sequence", "nodes", "running", "unclaimed")

    def __init__(self) -> None:
        self.nodes: list[N] = []
        self.running = 0  # how many have not ended
        self.failed = 0
        self.closed = False  # they are being cancelled, and no more are accepted
        # The calls of an earlier process that this one has not made yet, by key.
        self.unclaimed: dict[str, N] = {}
        self.next_sequence = 1
        self._keys: dict[str, int] = {}  # how often each key was requested

    def place(self, parent: Node, tied_with: Node | None) -> tuple[int, int]:
        """Return the index and the sequence number of the next call, which is added then.

        Raises:
            InvalidValueError: *tied_with* is not a child of *parent*.
        """
        index = len(self.nodes) + 1
        if tied_with is None:
            sequence = self.next_sequence
            self.next_sequence = sequence + 1
            return index, sequence
        if isinstance(tied_with, Node) and tied_with.parent is parent:
            return index, tied_with.sequence
        raise InvalidValueError(
            f"{tied_with!r} was called by another node; only siblings can be tied"
        )

    def key_of(self, request: CallRequest, content_key: str) -> str:
        """Return a new key for a call: the one it was given, or else *content_key*, counted.

        Raises:
            InvalidValueError: another call was given that key.
        """
        base = content_key
        if request.key is not None:
            base = named(request.key)
            if base in self._keys:
                raise InvalidValueError(
                    f"another call of the same caller has the key {request.key!r}; give another key"
                )
        times = self._keys[base] = self._keys.get(base, 0) + 1
        return base if times == 1 else f"{base} {times}"

    def claim(self, request: CallRequest) -> N | None:
        """Return the call of an earlier process with the key of *request*, if there is one."""
        known = self.unclaimed.get(request.call_key)
        if known is None:
            return None
        if known.function.name != request.function.name:
            raise InvalidValueError(
                f"{known!r} has the key {request.key!r}, and is another call; give another key"
            )
        return self.unclaimed.pop(request.call_key)

    def take_unclaimed(self) -> list[N]:
        """Return the calls of an earlier process that were not made again, and forget them."""
        left, self.unclaimed = list(self.unclaimed.values()), {}
        return left
