"""Makes views of records: a view is kept until an event changes what it shows."""

from typing import Final

from treefold.core.address import address
from treefold.core.epoch import Epoch
from treefold.core.fact import replace
from treefold.core.phases import Phase, PhaseKind
from treefold.core.question import Question
from treefold.core.record import RUNS, CallRecord, ConversationRecord
from treefold.core.said import SaidMessage
from treefold.core.usage import NO_COST, NO_USAGE
from treefold.core.views import NodeView

_NOTICEABLE: Final = 10  # percent of a window
_LEAST: Final = 0.01  # seconds; a call that starts sooner was not queued


def snapshot(record: CallRecord) -> NodeView:
    """Return a view of the call with this record and all below it."""
    outdated: list[CallRecord] = []
    stack = [record]
    while stack:
        one = stack.pop()
        if one.view is None:
            outdated.append(one)
            stack.extend(one.children)
    # Each record is after its parent, so backwards the views of children are made first.
    for one in reversed(outdated):
        one.view = _view_of(one)
    assert record.view is not None  # made above, unless there was one
    return record.view


def _view_of(record: CallRecord) -> NodeView:
    requested, ended, talk = record.requested, record.ended, record.conversation
    arriving = talk.arriving
    spending, changed, status = record.spending, record.changed, record.status
    children: list[NodeView] = []
    for child in record.children:
        view = child.view
        assert view is not None  # made before that of its parent
        children.append(view)
        changed = max(changed, view.update_seqnum)
        if status == RUNS and not view.state.final:
            status = f"waits for {view.fn} ({address(view.path)})"
    if ended is None and talk.responses:
        status += _fullness(talk)
    return NodeView(
        id=requested.node,
        path=record.path,
        fn=requested.function,
        inputs=record.inputs,
        outputs=None if ended is None else ended.outputs,
        exception=None if ended is None else ended.exception,
        state=record.state,
        values=tuple(record.values),
        children=tuple(children),
        sequence=requested.sequence,
        is_agent=requested.is_agent,
        version=record.version,
        tool_use_id=requested.tool_use_id,
        model=talk.model,
        system=talk.system,
        transcript=(*talk.transcript, *talk.unanswered),
        partial="" if arriving is None else "".join(arriving.texts),
        partial_output=None if arriving is None else arriving.output,
        usage=talk.usage,
        total_usage=NO_USAGE if spending is None else spending.usage,
        cost=talk.cost,
        total_cost=NO_COST if spending is None else spending.cost,
        status=f"held back: {record.held_back}" if record.held_back else status,
        held_back=record.held_back,
        inert=record.inert,
        notices=(*record.notices, *[_beginning(one) for one in talk.epochs if one.why]),
        questions=_questions_of(record),
        messages=_messages_of(record),
        started_at=record.started_at,
        ended_at=record.ended_at,
        update_seqnum=changed,
        phases=_phases_of(record),
    )


def _questions_of(record: CallRecord) -> tuple[Question, ...]:
    """Return the open questions to people; a call that only sleeps has none."""
    return tuple(asked for asked in (record.questions or {}).values() if asked.asks_people)


def _fullness(talk: ConversationRecord) -> str:
    """Return how full the window of a conversation is, in words; "" if that does not matter yet."""
    window = None if talk.opened is None else talk.opened.epoch.window
    percent = 100 * talk.responses[-1].usage.total // window if window else 0
    return f"; {percent} % of its window is full" if percent >= _NOTICEABLE else ""


def _beginning(epoch: Epoch) -> str:
    return f"its requests begin anew after response {epoch.bare}: {epoch.why}"


def _messages_of(record: CallRecord) -> tuple[SaidMessage, ...]:
    """Return what was said to a call; what has not been delivered when it ends is too late."""
    said = (record.conversation.messages or {}).values()
    if record.ended is None:
        return tuple(said)
    return tuple(replace(one, is_late=one.step is None) for one in said)


def _phases_of(record: CallRecord) -> tuple[Phase, ...]:
    """Return the phases of a call, and before them the time until it was started."""
    requested, started = record.requested.at, record.started
    waits = started is None and record.ended is None
    if requested is None or not (waits or (started or 0.0) - requested > _LEAST):
        return tuple(record.phases)
    return (Phase(PhaseKind.Queued, requested, started), *record.phases)
