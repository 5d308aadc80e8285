"""Compare two runs call by call.

Each call is paired with the one that it corresponds to. Times, tokens and cost always differ, and
are not compared.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treefold.core.transcript import ThinkingPart, ToolResult, ToolUse, TranscriptPart
from treefold.core.value_codec import digest
from treefold.core.views import NodeView


@dataclass(frozen=True, slots=True)
class Pair:
    """Two corresponding calls and what changed; one is None if only one run has the call."""

    a: NodeView | None
    b: NodeView | None
    changed: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both runs have the call, and nothing changed."""
        return self.a is not None and self.b is not None and not self.changed


def pairs_of(a: NodeView, b: NodeView) -> Iterator[Pair]:
    """Pair two calls and all calls below them; callers first.

    Calls of one caller correspond if they have the same function and the same arguments, in any
    order; of the others, the first call of a function corresponds to the first one, and so on.
    """
    stack: list[tuple[NodeView | None, NodeView | None]] = [(a, b)]
    while stack:
        one, other = stack.pop()
        if one is None or other is None:
            yield Pair(one, other)
        else:
            yield Pair(one, other, _changed(one, other))
        below = _matched(one.children if one else (), other.children if other else ())
        stack.extend(reversed(below))


def _changed(a: NodeView, b: NodeView) -> tuple[str, ...]:
    compared = {
        "function": (a.fn, b.fn),
        "inputs": (_comparable(a.inputs), _comparable(b.inputs)),
        "model": (a.model, b.model),
        "state": (a.state, b.state),
        "result": (_comparable(a.outputs), _comparable(b.outputs)),
        "error": (a.exception, b.exception),
        "values": (_comparable(a.values), _comparable(b.values)),
        "transcript": (_conversation(a), _conversation(b)),
    }
    return tuple(name for name, (one, other) in compared.items() if one != other)


def _comparable(value: Any) -> Any:
    """Return a key that is equal for equal values, also of types that do not define ``==``."""
    if value is None or type(value) is str:  # the usual case
        return value
    if value == () or value == {}:
        return type(value).__name__
    return ("digest", digest({**value} if isinstance(value, Mapping) else value))


def _conversation(view: NodeView) -> list[Any]:
    """Return the transcript without ids and other data that providers add to it."""
    return [view.system, *map(_content, view.transcript)]


def _content(part: TranscriptPart) -> Any:
    match part:
        case ThinkingPart():
            return "thinking", part.text
        case ToolUse():
            return "call", part.name, _comparable(part.args), part.fault
        case ToolResult():
            return "result", part.content, part.is_error
        case _:
            return part


def _matched(
    a: Sequence[NodeView], b: Sequence[NodeView]
) -> list[tuple[NodeView | None, NodeView | None]]:
    """Return the pairs in the order of *a*; calls that only *b* has keep their position in *b*."""
    partner = _partners(a, b)
    taken = {id(other) for other in partner.values()}
    alone = deque(other for other in b if id(other) not in taken)
    position = {id(other): index for index, other in enumerate(b)}
    found: list[tuple[NodeView | None, NodeView | None]] = []
    for one in a:
        other = partner.get(id(one))
        while other is not None and alone and position[id(alone[0])] < position[id(other)]:
            found.append((None, alone.popleft()))
        found.append((one, other))
    found.extend((None, other) for other in alone)
    return found


def _partners(a: Sequence[NodeView], b: Sequence[NodeView]) -> dict[int, NodeView]:
    """Return the calls in *b* that correspond to calls in *a*, by the ``id()`` of the latter."""
    found: dict[int, NodeView] = {}
    left = list(b)
    for key in (_function_and_inputs, _function):
        waiting: defaultdict[tuple[Any, ...], deque[NodeView]] = defaultdict(deque)
        for other in left:
            waiting[key(other)].append(other)
        for one in a:
            if id(one) not in found and (others := waiting.get(key(one))):
                found[id(one)] = others.popleft()
        taken = {id(other) for other in found.values()}
        left = [other for other in left if id(other) not in taken]
    return found


def _function_and_inputs(view: NodeView) -> tuple[Any, ...]:
    return view.fn, _comparable(view.inputs)


def _function(view: NodeView) -> tuple[Any, ...]:
    return (view.fn,)
