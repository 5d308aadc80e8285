"""Which part of a tree a fork shares with it: computed from events and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from treefold.core.agent_events import ResponseCompleted
from treefold.core.call_keys import is_past
from treefold.core.errors import InvalidValueError
from treefold.core.events import (
    AgentEdited,
    ArgumentsEdited,
    CallEnded,
    CallInherited,
    CallReopened,
    CallRequested,
    CallStarted,
    Event,
    QuestionAsked,
    QuestionSettled,
    TreeForked,
    ValueSent,
)
from treefold.core.states import NodeState


class _Unchanged(Enum):
    UNCHANGED = "unchanged"

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What is different in a fork.

    Attributes:
        prompt: what an agent is told first, instead.
        model: the model that an agent asks from there on.
        args: what the call is made with, instead.
        result: what came of the call, instead; it is not made.

    Example:
        >>> from treefold import Edit, MemoryStore, Runtime, agent
        >>> from treefold.testing import ScriptedModel
        >>> @agent
        ... def greet(name: str) -> str:
        ...     return f"Greet {name}."
        >>> with Runtime([greet], models=ScriptedModel("Hi!", "Moin!"), store=MemoryStore()) as run:
        ...     node = run.invoke(greet, {"name": "Ada"})
        ...     node.result()
        ...     run.fork(node, edit=Edit(prompt="Greet Ada in Low German.")).result()
        'Hi!'
        'Moin!'
    """

    prompt: str | None = None
    model: Any = None
    args: Mapping[str, Any] | None = None
    result: Any = UNCHANGED


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a fork leaves the tree that it comes from."""

    place: int  # the last event, counted from 1, that those nodes know of which are open again
    reopened: tuple[int, ...]  # the ids of those nodes, the top-level one first
    resumed: bool = False  # the tree itself goes on, and nothing is done anew
    calls_until: tuple[int, ...] = ()  # for each of those nodes, the last place of a shared call
    uncancelled: tuple[int, ...] = ()  # the ids of other nodes, whose cancellation is not shared


def cut_at(events: Sequence[Event], node: int, response: int) -> Cut:
    """Return the cut after that response of an agent, or before the node began for 0.

    Raises:
        InvalidValueError: it has had fewer responses.
    """
    seen = 0
    for place, event in enumerate(events, 1):
        if event.node != node:
            continue
        if not response and isinstance(event, CallRequested):
            return _cut_through(events, node, place)
        if isinstance(event, ResponseCompleted):
            seen += 1
            if seen == response:
                return _cut_through(events, node, place)
    raise InvalidValueError(f"node {node} has had {seen} responses, and not {response}")


def _cut_through(events: Sequence[Event], node: int, place: int) -> Cut:
    """Return the cut at *place*, with *node* and all above it open again.

    Calls beside that path are shared if they do not depend on what is done anew: those that a
    caller asked for before it learned anything from its call on the path.
    """
    parents = {e.node: e.parent for e in events if isinstance(e, CallRequested)}
    path: list[int] = []
    above: int | None = node
    while above is not None:
        path.append(above)
        above = parents[above]
    path.reverse()
    told: dict[int, int] = {}  # the first place after the cut where a node told its caller anything
    cancelled: set[int] = set()  # after the cut
    for number, event in enumerate(events[place:], place + 1):
        if isinstance(event, CallEnded | ValueSent):
            told.setdefault(event.node, number)
        if isinstance(event, CallEnded) and event.state is NodeState.Canceled:
            cancelled.add(event.node)
        elif isinstance(event, CallReopened | CallInherited):
            cancelled.discard(event.node)
    calls_until = [told.get(below, len(events)) for below in path[1:]]
    cut = Cut(place, tuple(path), calls_until=(*calls_until, place))
    return replace(cut, uncancelled=_beside(events, cut, cancelled))


def _beside(events: Sequence[Event], cut: Cut, cancelled: set[int]) -> tuple[int, ...]:
    """Return the *cancelled* calls beside the path of a cut, and those below them.

    Their callers may have cancelled them because of what is done anew.
    """
    until = dict(zip(cut.reopened, cut.calls_until, strict=True))
    beside, found = cancelled - until.keys(), set[int]()
    for place, event in enumerate(events, 1):
        if isinstance(event, CallRequested) and event.node in beside:
            parent = event.parent
            if parent in found or (parent is not None and place <= until.get(parent, 0)):
                found.add(event.node)
    return tuple(sorted(found))


def cut_at_failure(events: Sequence[Event], is_passing: Callable[[CallEnded], bool]) -> Cut:
    """Return the cut at the end, before the top-level call and what made it fail have ended.

    Open again is what was cancelled or failed for a reason that *is_passing*, and what failed
    because of that.
    """
    requests = [e for e in events if isinstance(e, CallRequested)]
    ends = {e.node: e for e in events if isinstance(e, CallEnded)}
    responses: dict[int, int] = {}
    for event in events:
        if isinstance(event, ResponseCompleted):
            responses[event.node] = responses.get(event.node, 0) + 1
    reopened: set[int] = {requests[0].node}
    for request in reversed(requests):  # those below come first
        node, ended, parent = request.node, ends.get(request.node), request.parent
        if ended is None or ended.state is NodeState.Success or parent is None:
            continue
        if is_past(request.key, responses.get(parent, 0)):
            continue  # the agent has heard of it, and went on
        if node in reopened or ended.state is NodeState.Canceled or is_passing(ended):
            reopened |= {node, parent}
    alive = _connected(requests, reopened)
    return Cut(len(events), tuple(sorted(alive)), resumed=True)


def _connected(requests: Iterable[CallRequested], nodes: set[int]) -> set[int]:
    """Return those of *nodes* whose parents are among them, up to the top."""
    found: set[int] = set()
    for request in requests:
        if request.node in nodes and (request.parent is None or request.parent in found):
            found.add(request.node)
    return found


def fork_of(events: Sequence[Event], cut: Cut, forked: TreeForked) -> TreeForked:
    """Return *forked* with what it shares filled in."""
    ids = _ids(events)
    numbers = {node: number for number, node in enumerate(ids, 1)}
    forked = replace(
        forked,
        cut=cut.place,
        length=len(events),
        reopened=tuple(numbers[node] for node in cut.reopened),
        resumed=cut.resumed,
        calls_until=cut.calls_until,
        uncancelled=tuple(numbers[node] for node in cut.uncancelled),
    )
    return replace(forked, inherited=len(_shared(events, forked)) - 1)


def inherit(events: Sequence[Event], forked: TreeForked) -> list[Event]:
    """Return what the fork knows of the *events* of the other tree, as its own."""
    shared = _shared(events, forked)
    new_ids = {old: forked.node + number for number, old in enumerate(sorted(shared))}
    ids = _ids(events[: forked.length])
    reopened = {ids[number - 1] for number in forked.reopened}
    unended = reopened | {ids[number - 1] for number in forked.uncancelled}
    found: list[Event] = []
    for place, event in enumerate(events[: forked.length], 1):
        if event.node not in shared:
            continue
        if event.node in reopened and place > forked.cut:
            continue
        if event.node in unended and isinstance(event, CallEnded):
            continue
        found.append(_moved(event, new_ids, forked))
    return found


def new_id(events: Sequence[Event], forked: TreeForked, node: int) -> int:
    """Return the id in the fork of a node of the other tree."""
    return forked.node + sorted(_shared(events, forked)).index(node)


def _ids(events: Sequence[Event]) -> list[int]:
    return sorted(event.node for event in events if isinstance(event, CallRequested))


def _shared(events: Sequence[Event], forked: TreeForked) -> set[int]:
    """Return the nodes that the fork has, too.

    A call beside those that are open again is shared with all that came of it.
    """
    ids = _ids(events[: forked.length])
    calls_until = forked.calls_until or [forked.cut] * len(forked.reopened)
    reopened = (ids[number - 1] for number in forked.reopened)
    until = dict(zip(reopened, calls_until, strict=True))
    shared: set[int] = set()
    for place, event in enumerate(events[: forked.length], 1):
        if isinstance(event, CallRequested):
            parent = event.parent
            if parent is None or (parent in shared and place <= until.get(parent, forked.length)):
                shared.add(event.node)
    return shared


def _moved(event: Event, new_ids: Mapping[int, int], forked: TreeForked) -> Event:
    node = new_ids[event.node]
    match event:
        case CallRequested(parent=parent):
            moved = replace(event, node=node, continues=_continued(event, forked))
            if parent is not None:
                return replace(moved, parent=new_ids[parent])
            return replace(moved, index=forked.number, sequence=forked.number, key=forked.key)
        case QuestionAsked():
            id = _question_id(event.question.id, node)
            return replace(event, node=node, question=replace(event.question, id=id, node_id=node))
        case QuestionSettled():
            return replace(event, node=node, id=_question_id(event.id, node))
        case _:
            return replace(event, node=node)


def _continued(event: CallRequested, forked: TreeForked) -> int | None:
    """Return the call that goes on in the fork, if it is the same."""
    return (event.continues or event.node) if forked.resumed else None


def _question_id(id: str, node: int) -> str:
    return f"{node}-{id.partition('-')[2]}"


def checked_place(function: Any, at: int | None, edit: Edit | None) -> int:
    """Return the response after which a fork goes on, if the *edit* fits there.

    Raises:
        InvalidValueError: it does not.
    """
    response = fitting_place(function.name, at, edit, is_agent=function.is_agent)
    if edit is not None and edit.args is not None:
        function.parameters.validate(edit.args)
    return response


def fitting_place(name: str, at: int | None, edit: Edit | None, *, is_agent: bool) -> int:
    """Return the response after which a fork goes on, if such an *edit* may be made there.

    Raises:
        InvalidValueError: it may not.
    """
    edit = edit or Edit()
    if not isinstance(edit, Edit):
        raise InvalidValueError(f"an edit is an Edit(...), not {edit!r}")
    told = [edit.prompt is not None or edit.model is not None, edit.args is not None]
    told.append(edit.result is not UNCHANGED)
    if sum(told) > 1 and (told[2] or at):
        raise InvalidValueError("a result, arguments and what an agent is told do not go together")
    if told[0] and not is_agent:
        raise InvalidValueError(f"{name} is code: it has no prompt and no model")
    if at is not None and (not is_agent or told[2]):
        raise InvalidValueError(f"at={at!r} is for an agent that goes on, not for {name} here")
    if at and (edit.prompt is not None or told[1]):
        raise InvalidValueError(f"what {name} is given can only be changed at its beginning, at=0")
    if at is not None and (not isinstance(at, int) or at < 0):
        raise InvalidValueError(f"at={at!r}: give the number of a response, or 0")
    return at or 0


def still_open(events: Sequence[Event]) -> list[CallInherited]:
    """Return that the calls below the top-level one which have not ended are the fork's, too."""
    ended: set[int] = set()
    for event in events:
        if isinstance(event, CallEnded):
            ended.add(event.node)
        elif isinstance(event, CallReopened | CallInherited):
            ended.discard(event.node)
    requests = [e for e in events if isinstance(e, CallRequested) and e.parent is not None]
    return [inherited_call(request) for request in requests if request.node not in ended]


def inherited_call(request: CallRequested) -> CallInherited:
    """Return that a call below the top-level one, of which a fork knows, is open in it."""
    assert request.parent is not None  # or it would be the fork itself
    return CallInherited(
        request.node,
        request.parent,
        request.key,
        request.index,
        request.function,
        request.is_agent,
    )


def still_asked(events: Sequence[Event]) -> list[QuestionAsked]:
    """Return the questions that wait for an answer, in the fork as in the other tree."""
    waiting: dict[str, QuestionAsked] = {}
    for event in events:
        if isinstance(event, QuestionAsked):
            waiting[event.question.id] = event
        elif isinstance(event, QuestionSettled):
            waiting.pop(event.id, None)
        elif isinstance(event, CallEnded):
            waiting = {id: asked for id, asked in waiting.items() if asked.node != event.node}
    return list(waiting.values())


def edits_of(node: int, edit: Edit | None, at: float) -> Iterator[Event]:
    """Yield what an *edit* of a call comes to."""
    if edit is None:
        return
    if edit.args is not None:
        yield ArgumentsEdited(node, edit.args)
    if edit.prompt is not None or edit.model is not None:
        model = edit.model
        name = None if model is None else str(getattr(model, "name", model))
        yield AgentEdited(node, edit.prompt, name)
    if edit.result is not UNCHANGED:
        yield CallStarted(node, at)
        yield CallEnded(node, NodeState.Success, at, edit.result, given=True)
