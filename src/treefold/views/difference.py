"""What is different between two runs, call by call.

Each call is laid beside the one that it corresponds to. Times, tokens and money always differ, and
are not looked at.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treefold.core.packing import digest
from treefold.core.transcript import ThinkingPart, ToolResult, ToolUse, TranscriptPart
from treefold.core.views import NodeView


@dataclass(frozen=True, slots=True)
class Pair:
    """A call of either run, and what changed; one that only one run has stands alone."""

    a: NodeView | None
    b: NodeView | None
    changed: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both runs have it, and nothing changed."""
        return self.a is not None and self.b is not None and not self.changed


def pairs_of(a: NodeView, b: NodeView) -> Iterator[Pair]:
    """Lay two calls, and all below them, beside each other; callers come before those they called.

    Calls of one caller correspond if they are of the same function with the same arguments, in
    whatever order; of those that are left, the first of a function to the first of it, and so on.
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
    looked_at = {
        "function": (a.fn, b.fn),
        "inputs": (_known_by(a.inputs), _known_by(b.inputs)),
        "model": (a.model, b.model),
        "state": (a.state, b.state),
        "result": (_known_by(a.outputs), _known_by(b.outputs)),
        "error": (a.exception, b.exception),
        "values": (_known_by(a.values), _known_by(b.values)),
        "transcript": (_said(a), _said(b)),
    }
    return tuple(name for name, (one, other) in looked_at.items() if one != other)


def _known_by(value: Any) -> Any:
    """Return what tells a value from others, for values that may not know it themselves."""
    if value is None or type(value) is str:  # as most are
        return value
    if value == () or value == {}:
        return type(value).__name__
    return ("digest", digest({**value} if isinstance(value, Mapping) else value))


def _said(view: NodeView) -> list[Any]:
    """Return what was said without what providers add to it."""
    return [view.system, *map(_words, view.transcript)]


def _words(part: TranscriptPart) -> Any:
    match part:
        case ThinkingPart():
            return "thinking", part.text
        case ToolUse():
            return "call", part.name, _known_by(part.args), part.fault
        case ToolResult():
            return "result", part.content, part.is_error
        case _:
            return part


def _matched(
    a: Sequence[NodeView], b: Sequence[NodeView]
) -> list[tuple[NodeView | None, NodeView | None]]:
    """Return the calls that correspond, in the order of *a*, those of *b* alone where they were."""
    partner = _partners(a, b)
    taken = {id(other) for other in partner.values()}
    alone = deque(other for other in b if id(other) not in taken)
    place = {id(other): index for index, other in enumerate(b)}
    found: list[tuple[NodeView | None, NodeView | None]] = []
    for one in a:
        other = partner.get(id(one))
        while other is not None and alone and place[id(alone[0])] < place[id(other)]:
            found.append((None, alone.popleft()))
        found.append((one, other))
    found.extend((None, other) for other in alone)
    return found


def _partners(a: Sequence[NodeView], b: Sequence[NodeView]) -> dict[int, NodeView]:
    """Return for calls in *a*, by their place in memory, those in *b* that they correspond to."""
    found: dict[int, NodeView] = {}
    left = list(b)
    for key in (_call, _function):
        waiting: defaultdict[tuple[Any, ...], deque[NodeView]] = defaultdict(deque)
        for other in left:
            waiting[key(other)].append(other)
        for one in a:
            if id(one) not in found and (others := waiting.get(key(one))):
                found[id(one)] = others.popleft()
        taken = {id(other) for other in found.values()}
        left = [other for other in left if id(other) not in taken]
    return found


def _call(view: NodeView) -> tuple[Any, ...]:
    return view.fn, _known_by(view.inputs)


def _function(view: NodeView) -> tuple[Any, ...]:
    return (view.fn,)
