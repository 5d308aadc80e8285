"""What a fork shares with its source, the tree that it was forked from; computed from events.

A position is the number of an event in its tree, counted from 1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from treefold.core.agent_events import (
    BudgetAwaited,
    ConversationOpened,
    HookDecided,
    LeaseAwaited,
    RateAwaited,
    RequestFailed,
    RequestRetried,
    RequestSent,
    ResponseCompleted,
)
from treefold.core.call_keys import is_past
from treefold.core.edit import UNCHANGED, Edit
from treefold.core.errors import InvalidValueError
from treefold.core.events import (
    AgentEdited,
    ArgumentsEdited,
    CallEnded,
    CallInherited,
    CallOptions,
    CallReopened,
    CallRequested,
    CallStarted,
    Event,
    GuardsAdded,
    QuestionAsked,
    QuestionEscalated,
    QuestionNotified,
    QuestionSettled,
    TreeForked,
    TreeImported,
    ValueSent,
    set_node,
)
from treefold.core.fact import Fact, replace
from treefold.core.outside import is_outside
from treefold.core.states import NodeState

# What belongs to an attempt to send a request, beside that it was sent and failed.
_ATTEMPT: Final = (BudgetAwaited, LeaseAwaited, RateAwaited, RequestRetried)
# Events that have ids of calls or questions beside that of their own call.
_WITH_IDS: Final = (
    CallRequested,
    QuestionAsked,
    QuestionEscalated,
    QuestionNotified,
    QuestionSettled,
)


class Cut(Fact, frozen=True):
    """Where a fork departs from its source."""

    position: int  # the position of the last event that reopened nodes share
    reopened: tuple[int, ...]  # the ids of the nodes that are open again, the top-level one first
    resumed: bool = False  # the source itself is resumed, and nothing is done again
    # For each of *reopened*, the position of its last child call that is shared.
    calls_until: tuple[int, ...] = ()
    uncancelled: tuple[int, ...] = ()  # the ids of other nodes, whose cancellation is not shared


def cut_at(events: Sequence[Event], node: int, response: int) -> Cut:
    """Return the cut after a *response* of an agent, or, for 0, before the node started.

    Raises:
        InvalidValueError: the node has had fewer responses.
    """
    last = 0
    for position, event in enumerate(events, 1):
        if event.node != node:
            continue
        if not response and isinstance(event, CallRequested):
            return _cut_through(events, node, position)
        if isinstance(event, ResponseCompleted):
            last = event.step
            if last == response:
                return _cut_through(events, node, position)
    raise InvalidValueError(f"it has had {last} responses, and not {response}")


def _cut_through(events: Sequence[Event], node: int, position: int) -> Cut:
    """Return the cut at *position*, with *node* and all calls above it open again.

    Calls beside that path are shared if they do not depend on what runs again: those that a caller
    requested before it received a value or the end of its call on the path.
    """
    parents = {e.node: e.parent for e in events if isinstance(e, CallRequested)}
    path: list[int] = []
    above: int | None = node
    while above is not None:
        path.append(above)
        above = parents[above]
    path.reverse()
    # By node, the first position after the cut at which its caller received something from it.
    first_output: dict[int, int] = {}
    cancelled: set[int] = set()  # after the cut
    for number, event in enumerate(events[position:], position + 1):
        if isinstance(event, CallEnded | ValueSent):
            first_output.setdefault(event.node, number)
        if isinstance(event, CallEnded) and event.state is NodeState.Canceled:
            cancelled.add(event.node)
        elif isinstance(event, CallReopened | CallInherited):
            cancelled.discard(event.node)
    calls_until = [first_output.get(below, len(events)) for below in path[1:]]
    cut = Cut(position, tuple(path), calls_until=(*calls_until, position))
    return replace(cut, uncancelled=_beside(events, cut, cancelled))


def _beside(events: Sequence[Event], cut: Cut, cancelled: set[int]) -> tuple[int, ...]:
    """Return the *cancelled* calls beside the path of a cut, and those below them.

    Their callers may have cancelled them because of what runs again.
    """
    until = dict(zip(cut.reopened, cut.calls_until, strict=True))
    beside, found = cancelled - until.keys(), set[int]()
    for position, event in enumerate(events, 1):
        if isinstance(event, CallRequested) and event.node in beside:
            parent = event.parent
            if parent in found or (parent is not None and position <= until.get(parent, 0)):
                found.add(event.node)
    return tuple(sorted(found))


def cut_at_failure(events: Sequence[Event]) -> Cut:
    """Return the cut that resumes a failed tree at its end.

    The top-level call is open again, and so are calls that were cancelled, calls that failed for
    want of something outside the tree, and calls that failed because of those.
    """
    requests = [e for e in events if isinstance(e, CallRequested)]
    ends = {e.node: e for e in events if isinstance(e, CallEnded)}
    steps = {e.node: e.step for e in events if isinstance(e, ResponseCompleted)}  # the last ones
    reopened: set[int] = {requests[0].node}
    # Children before their parents.
    for request in reversed(requests):
        node, ended, parent = request.node, ends.get(request.node), request.parent
        if ended is None or ended.state is NodeState.Success or parent is None:
            continue
        # The agent has received the failure and continued.
        if is_past(request.key, steps.get(parent, 0)):
            continue
        if node in reopened or ended.state is NodeState.Canceled or is_outside(ended.exception):
            reopened |= {node, parent}
    connected = _connected(requests, reopened)
    return Cut(len(events), tuple(sorted(connected)), resumed=True)


def _connected(requests: Iterable[CallRequested], nodes: set[int]) -> set[int]:
    """Return those of *nodes* whose parents, up to the top-level call, are all among them."""
    found: set[int] = set()
    for request in requests:
        if request.node in nodes and (request.parent is None or request.parent in found):
            found.add(request.node)
    return found


def fork_of(events: Sequence[Event], cut: Cut, forked: TreeForked) -> TreeForked:
    """Return *forked* with the fields filled in that say what the fork shares."""
    ids = _ids(events)
    numbers = {node: number for number, node in enumerate(ids, 1)}
    forked = replace(
        forked,
        cut=cut.position,
        length=len(events),
        reopened=tuple(numbers[node] for node in cut.reopened),
        resumed=cut.resumed,
        calls_until=cut.calls_until,
        uncancelled=tuple(numbers[node] for node in cut.uncancelled),
    )
    return replace(forked, inherited=len(_shared(events, forked)) - 1)


def inherit(events: Sequence[Event], forked: TreeForked, *, in_place: bool = False) -> list[Event]:
    """Return the shared *events* of the source as events of the fork.

    *in_place* changes the given ones, which is several times quicker.
    """
    shared = _shared(events, forked)
    new_ids = {old: forked.node + number for number, old in enumerate(sorted(shared))}
    kept = _kept(events, forked, shared)
    if not in_place:
        return [_moved(event, new_ids, forked) for event in kept]
    found = list(kept)
    for place, event in enumerate(found):
        if isinstance(event, _WITH_IDS):
            found[place] = _moved(event, new_ids, forked)
        else:
            set_node(event, new_ids[event.node])
    return found


def done_again(events: Sequence[Event], cut: Cut) -> list[Event]:
    """Return the events that a fork at *cut* does not share: what it may do again."""
    unfilled = TreeForked(
        0, 0.0, "", 0, "", is_agent=False, source=0, inherited=0, cut=0, length=0, reopened=()
    )
    forked = fork_of(events, cut, unfilled)
    kept = set(map(id, _kept(events, forked, _shared(events, forked))))
    return [event for event in events if id(event) not in kept]


def _kept(events: Sequence[Event], forked: TreeForked, shared: set[int]) -> Iterator[Event]:
    """Yield those *events* of the source that the fork shares; *shared* are its shared nodes."""
    ids = _ids(events[: forked.length])
    reopened = {ids[number - 1] for number in forked.reopened}
    unended = reopened | {ids[number - 1] for number in forked.uncancelled}
    left_out = set[int]()
    if forked.resumed:
        known = events[: forked.length]
        left_out = _untold(known, reopened) | _tried_again(known, reopened)
    for position, event in enumerate(events[: forked.length], 1):
        if event.node not in shared or position in left_out:
            continue
        # A fork is bound by all that bound its source, also by what came later.
        is_guard = isinstance(event, GuardsAdded | TreeImported)
        if event.node in reopened and position > forked.cut and not is_guard:
            continue
        if event.node in unended and isinstance(event, CallEnded):
            continue
        yield event


def _tried_again(events: Sequence[Event], reopened: set[int]) -> set[int]:
    """Return the positions of what *reopened* agents have done for a request that they sent again.

    A run may fail a thousand times before its provider is there: only the last attempt is shared.
    """
    found = set[int]()
    attempts: dict[int, list[int]] = {}  # by agent, since its last response
    opened: dict[int, int] = {}  # by agent, when its conversation was opened last
    for position, event in enumerate(events, 1):
        if event.node not in reopened:
            continue
        attempt = attempts.setdefault(event.node, [])
        if isinstance(event, ResponseCompleted):
            attempt.clear()
        elif isinstance(event, ConversationOpened):
            if event.goes_on:
                attempt.append(position)
                opened[event.node] = position
        elif isinstance(event, RequestSent):
            last = opened.get(event.node, 0)
            found.update(one for one in attempt if one != last)
            attempt[:] = [one for one in attempt if one == last] + [position]
        elif isinstance(event, _ATTEMPT) or (
            isinstance(event, RequestFailed) and not event.usage.total
        ):
            attempt.append(position)
    return found


def _untold(events: Sequence[Event], reopened: set[int]) -> set[int]:
    """Return the positions of what agents were to be told of the failure of *reopened* calls.

    Such a request was sent, and not answered: the agent waits for the calls again.
    """
    last: dict[int, tuple[int, int]] = {}  # by agent, the position and step of its last response
    for position, event in enumerate(events, 1):
        if isinstance(event, ResponseCompleted):
            last[event.node] = position, event.step
    again: dict[int, set[str]] = {}  # by agent, the keys of the calls of its last response
    for event in events:
        if not isinstance(event, CallRequested) or event.node not in reopened:
            continue
        if event.parent in last and not is_past(event.key, last[event.parent][1]):
            again.setdefault(event.parent, set()).add(event.key)
    return {
        position
        for position, event in enumerate(events, 1)
        if event.node in again
        and position > last[event.node][0]
        and (
            isinstance(event, RequestSent)
            or (isinstance(event, HookDecided) and f"/{event.key}" in again[event.node])
        )
    }


def new_id(events: Sequence[Event], forked: TreeForked, node: int) -> int:
    """Return the id that a *node* of the source has in the fork."""
    return forked.node + sorted(_shared(events, forked)).index(node)


def _ids(events: Sequence[Event]) -> list[int]:
    return sorted(event.node for event in events if isinstance(event, CallRequested))


def _shared(events: Sequence[Event], forked: TreeForked) -> set[int]:
    """Return the nodes of the source that the fork shares.

    A call beside the reopened ones is shared to its end, with all calls below it.
    """
    ids = _ids(events[: forked.length])
    calls_until = forked.calls_until or [forked.cut] * len(forked.reopened)
    reopened = (ids[number - 1] for number in forked.reopened)
    until = dict(zip(reopened, calls_until, strict=True))
    shared: set[int] = set()
    for position, event in enumerate(events[: forked.length], 1):
        if isinstance(event, CallRequested):
            parent = event.parent
            if parent is None or (
                parent in shared and position <= until.get(parent, forked.length)
            ):
                shared.add(event.node)
    return shared


def _moved(event: Event, new_ids: Mapping[int, int], forked: TreeForked) -> Event:
    node = new_ids[event.node]
    match event:
        case CallRequested(parent=parent):
            moved = replace(event, node=node, continues=_continued(event, forked))
            if parent is not None:
                # A remote call of the source is no drive of its own in the fork: it runs with that.
                return replace(moved, parent=new_ids[parent], queue="")
            number = forked.tree_number
            moved = replace(moved, index=number, sequence=number, key=forked.key)
            if forked.budget is None:
                return moved
            options = replace(event.options or CallOptions(), budget=forked.budget)
            return replace(moved, options=options)
        case QuestionAsked() | QuestionEscalated() | QuestionNotified():
            id = _question_id(event.question.id, node)
            return replace(event, node=node, question=replace(event.question, id=id, node_id=node))
        case QuestionSettled():
            return replace(event, node=node, id=_question_id(event.id, node))
        case _:
            return replace(event, node=node)


def _continued(event: CallRequested, forked: TreeForked) -> int | None:
    """Return the call of the source that *event* continues, if the fork resumes its source."""
    return (event.continues or event.node) if forked.resumed else None


def _question_id(id: str, node: int) -> str:
    return f"{node}-{id.partition('-')[2]}"


def checked_response(function: Any, at: int | None, edit: Edit | None) -> int:
    """Return the number of the response after which a fork continues.

    Raises:
        InvalidArgumentsError: the edited arguments do not fit *function*.
        InvalidValueError: the *edit* cannot be made there.
    """
    response = fitting_response(function.name, at, edit, is_agent=function.is_agent)
    if edit is not None and edit.args is not None:
        function.parameters.validate(edit.args)
    return response


def fitting_response(name: str, at: int | None, edit: Edit | None, *, is_agent: bool) -> int:
    """Return the number of the response after which a fork continues; does not validate arguments.

    Raises:
        InvalidValueError: such an *edit* cannot be made there.
    """
    edit = edit or Edit()
    if not isinstance(edit, Edit):
        raise InvalidValueError(f"edit must be an Edit(...), got {edit!r}")
    for field in ("prompt", "system"):
        if not isinstance(text := getattr(edit, field), str | None):
            raise InvalidValueError(f"Edit({field}=...) must be a str or None, got {text!r}")
    edits_agent = _edits_agent(edit)
    edits_args, edits_result = edit.args is not None, edit.result is not UNCHANGED
    if edits_agent + edits_args + edits_result > 1 and (edits_result or at):
        raise InvalidValueError(
            "an edit cannot combine a result with other changes, nor args with a prompt, model"
            " or system prompt after a response"
        )
    if edits_agent and not is_agent:
        raise InvalidValueError(f"{name} is code: it has no prompt and no model")
    if at is not None and (not is_agent or edits_result):
        raise InvalidValueError(
            f"at={at!r} is only for an agent whose result is not edited; leave it out for {name}"
        )
    if at and (edit.prompt is not None or edits_args):
        raise InvalidValueError(
            f"the prompt and arguments of {name} can only be edited at its beginning, at=0"
        )
    if at is not None and (not isinstance(at, int) or at < 0):
        raise InvalidValueError(f"at={at!r}: give the number of a response, or 0")
    return at or 0


def _edits_agent(edit: Edit) -> bool:
    return any(one is not None for one in (edit.prompt, edit.model, edit.system))


def still_open(events: Sequence[Event], version_of: Callable[[str], str]) -> list[CallInherited]:
    """Return an event for each open call below the top-level one: it is open in the fork, too.

    *version_of* returns the version of the function with that name.
    """
    ended: set[int] = set()
    for event in events:
        if isinstance(event, CallEnded):
            ended.add(event.node)
        elif isinstance(event, CallReopened | CallInherited):
            ended.discard(event.node)
    requests = [e for e in events if isinstance(e, CallRequested) and e.parent is not None]
    return [
        inherited_call(request, version_of(request.function))
        for request in requests
        if request.node not in ended
    ]


def inherited_call(request: CallRequested, version: str) -> CallInherited:
    """Return the event that a shared call below the top-level one is open in the fork."""
    assert request.parent is not None  # the top-level call has a TreeForked event instead
    return CallInherited(
        request.node,
        request.parent,
        request.key,
        request.index,
        request.function,
        request.is_agent,
        version,
    )


def still_asked(events: Sequence[Event]) -> list[QuestionAsked]:
    """Return the questions that are open in the source, and therefore in the fork."""
    waiting: dict[str, QuestionAsked] = {}
    for event in events:
        if isinstance(event, QuestionAsked):
            waiting[event.question.id] = event
        elif isinstance(event, QuestionEscalated) and event.question.id in waiting:
            waiting[event.question.id] = QuestionAsked(event.node, event.at, event.question)
        elif isinstance(event, QuestionSettled):
            waiting.pop(event.id, None)
        elif isinstance(event, CallEnded):
            waiting = {id: asked for id, asked in waiting.items() if asked.node != event.node}
    return list(waiting.values())


def edits_of(node: int, edit: Edit | None, at: float) -> Iterator[Event]:
    """Yield the events of an *edit* of the call *node*."""
    if edit is None:
        return
    if edit.args is not None:
        yield ArgumentsEdited(node, edit.args)
    if _edits_agent(edit):
        model = edit.model
        name = None if model is None else str(getattr(model, "name", model))
        yield AgentEdited(node, edit.prompt, name, edit.system)
    if edit.result is not UNCHANGED:
        yield CallStarted(node, at)
        yield CallEnded(node, NodeState.Success, at, edit.result, given=True)
