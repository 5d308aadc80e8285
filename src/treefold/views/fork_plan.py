"""What a fork would do again, and what that took the last time; which calls a fork shares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from treefold.core.agent_events import ConversationOpened, ResponseCompleted
from treefold.core.events import CallRequested, Event
from treefold.core.forking import cut_at, done_again
from treefold.core.usage import NO_COST, NO_USAGE, TokenUsage, added
from treefold.core.views import NodeView


@dataclass(frozen=True, slots=True)
class DoneAgain:
    """The calls of one function that a fork would make again, or the rest of them.

    Attributes:
        model: the last one that was asked, None for code.
        calls: how many are made again; a call that only continues is not counted.
        responses: how many responses are asked for again.
        usage: the tokens of those responses the last time, and their cost.
    """

    function: str
    model: str | None = None
    calls: int = 0
    responses: int = 0
    usage: TokenUsage = NO_USAGE
    cost: Decimal | None = NO_COST


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork shares, and what it does again.

    Attributes:
        shared: how many calls are neither made again nor continued.
    """

    shared: int
    again: tuple[DoneAgain, ...]


def fork_plan(
    events: Sequence[Event], node: int, at: int = 0, *, gives_result: bool = False
) -> ForkPlan:
    """Return what a fork of a tree at the call *node* does again, after its response *at*.

    *events* are those of the tree. If the fork *gives_result*, the call itself is not made again.

    Raises:
        InvalidValueError: the call has had fewer responses.
    """
    cut = cut_at(events, node, at)
    again = done_again(events, cut)
    requests = {event.node: event for event in events if isinstance(event, CallRequested)}
    below = {node} if gives_result else set[int]()  # the call and all calls below it
    for request in requests.values():
        if request.parent in below:
            below.add(request.node)
    made = {event.node for event in again if isinstance(event, CallRequested)}
    if not at:
        made.add(node)
    found: dict[str, DoneAgain] = {}
    for id in sorted(made - below):
        one = _of(found, requests[id].function)
        found[one.function] = replace(one, calls=one.calls + 1)
    models = {event.node: event.model for event in events if isinstance(event, ConversationOpened)}
    for event in again:
        if isinstance(event, ResponseCompleted) and event.node not in below:
            one = _of(found, requests[event.node].function)
            found[one.function] = replace(
                one,
                model=models.get(event.node),
                responses=one.responses + 1,
                usage=one.usage + event.usage,
                cost=added(one.cost, event.cost),
            )
    shared = requests.keys() - made - below - set(cut.reopened)
    return ForkPlan(len(shared), tuple(found.values()))


def _of(found: dict[str, DoneAgain], function: str) -> DoneAgain:
    return found.setdefault(function, DoneAgain(function))


def shared_calls(fork: NodeView, source: NodeView) -> dict[int, int]:
    """Return the calls that *fork* shares with *source*, by their ids in the fork.

    A shared call has the same events in both, so it started and ended at the same instants.
    """
    found: dict[int, int] = {}
    stack = [(fork, source)]
    while stack:
        one, other = stack.pop()
        others = {child.path.rpartition(".")[2]: child for child in other.children}
        for child in one.children:
            twin = others.get(child.path.rpartition(".")[2])
            if twin is None or twin.fn != child.fn or twin.started_at != child.started_at:
                continue
            if child.ended_at is not None and twin.ended_at == child.ended_at:
                found[child.id] = twin.id
            stack.append((child, twin))
    return found
