"""Ask a person a question and wait for the answer, without a lease."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from treefold.core.errors import ClosedError, InvalidValueError, StoreError, TooLargeError
from treefold.core.question import (
    CANCEL,
    REPORT,
    RESUME,
    Answer,
    Question,
    QuestionKey,
    QuestionKind,
    key_of,
)
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import root_of, upwards
from treefold.runtime.limits.leases import give_up_lease
from treefold.runtime.loops.loop_handle import settle as settle_future

log = logging.getLogger(__name__)


async def ask(
    node: CallNode,
    kind: QuestionKind,
    text: str,
    choices: Sequence[str] = (),
    key: str | None = None,
) -> Answer:
    """Ask a person and wait for the answer; *node* is Paused meanwhile.

    If a question with the same *key* was answered in an earlier process, that answer is returned at
    once. By default the key is derived from *text*.

    Raises:
        ClosedError: *node* has ended; if it ends during the wait, the wait is cancelled.
    """
    return await put(node, new_question(node, kind, text, choices, key))


def new_question(
    node: CallNode,
    kind: QuestionKind,
    text: str,
    choices: Sequence[str] = (),
    key: str | None = None,
) -> Question:
    """Return a question of *node*, to be put; by default its key is derived from *text*."""
    key = key_of(node.tree.as_written(text)) if key is None else key
    return Question(
        id="",
        node_id=node.id,
        kind=kind,
        text=text,
        choices=tuple(choices),
        key=key,
        deadline=_deadline_of(node),
    )


def _deadline_of(node: CallNode) -> float | None:
    """Return when *node*, or a call above it, is stopped; None if none of them has a time limit."""
    found, now = list[float | None](), node.tree.now()
    for one in upwards(node):
        own = [account.seconds_left() for account in one.accounts if account.owner is one]
        found += [one.record.deadline, *(now + left for left in own if left is not None)]
    return min([at for at in found if at is not None], default=None)


async def put(
    node: CallNode, question: Question, check: Callable[[str], object] | None = None
) -> Answer:
    """Put *question* to a person, or wait for its time, and return the answer; as ``ask``.

    *check* raises InvalidValueError if an answer is not valid; then the question stays open.
    """
    kind, key = question.kind, question.key
    if node.is_concluded:
        raise ClosedError(f"{node!r} has ended and can ask no more questions")
    # An answer that resumed a paused call was valid once only; the exception is a pause over a
    # failed call, because the failure is recorded, too.
    if kind is not QuestionKind.Paused or REPORT in question.choices:
        known = node.record.receive_answer(kind, key)
        if known is not None:
            return known
    answered: asyncio.Future[Answer] = node.loop_handle.loop.create_future()

    def settle(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def withdraw() -> None:
        node.board.close(asked.id)
        answered.cancel()

    give_up_lease(node)
    asked = _open(node, question, settle, check)
    node.add_end_callback(withdraw)
    try:
        answer = await answered
    finally:
        node.remove_end_callback(withdraw)
        node.board.close(asked.id)
        node.end_pause()
    # It is received here; only an earlier process leaves answers that are not.
    node.record.receive_answer(kind, key)
    if node.tree.journal is not None:
        await node.tree.journal.saved(node)
    return answer


def _open(
    node: CallNode,
    question: Question,
    settle: Callable[[Answer], None],
    check: Callable[[str], object] | None,
) -> Question:
    """Open a question, and let *node* be Paused."""
    board, tree, loop_handle = node.board, node.tree, node.loop_handle
    if not question.asks_people:
        asked = board.ask(question, tree, loop_handle, settle, check)
        node.begin_pause(asked.text)
        return asked
    # It is Paused before people can see the question.
    node.begin_pause(question.text)
    try:
        return board.ask(question, tree, loop_handle, settle, check)
    except (TooLargeError, InvalidValueError):
        node.end_pause()
        raise


async def ask_to_resume(node: CallNode, why: str, key: str, choices: Sequence[str] = ()) -> str:
    """Pause *node* until a person chooses how to continue: resume, or one of *choices*.

    Returns the choice. If it is to cancel, *node* is cancelled and this does not return.
    """
    answer = await ask(node, QuestionKind.Paused, why, (RESUME, *choices, CANCEL), key)
    if answer.text == CANCEL:
        node.cancel_on_loop(f"cancelled while it was paused: {why}")
        await asyncio.sleep(0)  # raises CancelledError
    return answer.text


async def wait_for_help(
    node: CallNode, error: StoreError, writable: "asyncio.Future[None]"
) -> None:
    """Wait until the journal can be written again, or until a person asks to try again.

    All waiting calls share one question. It is written together with everything else that happened
    meanwhile, once the journal is writable, and is closed then without an answer.
    """
    # In the journal nothing may follow the end of a call, even if that end is not written yet.
    board, show = node.board, node.tree.show if node.is_concluded else node.tree.publish
    if board.outage is None:
        board.outage = node.loop_handle.loop.create_future()
        _ask_for_help(node, board.outage, error, writable)
    node.begin_pause(str(error), show=show)
    try:
        await asyncio.shield(board.outage)
    finally:
        node.end_pause(show=show)


def _ask_for_help(
    node: CallNode,
    outage: "asyncio.Future[None]",
    error: StoreError,
    writable: "asyncio.Future[None]",
) -> None:
    board, tree, choices = node.board, node.tree, (RESUME, CANCEL)
    text = (
        f"{error}; calls that have to be written down wait until it can be written: see to that, "
        "then they continue by themselves"
    )
    settle = partial(_end_outage, node, outage)

    def resume(_: object = None) -> None:
        """Close the question: the journal is writable again, or the call that asks has ended."""
        if board.outage is outage:
            board.outage = None
            board.close(asked.id, Answer(RESUME))
            settle_future(outage)

    holder = next((one for one in upwards(node) if not one.is_concluded), None)
    if holder is None:
        asked = board.show(node.id, tree, node.loop_handle, text, choices, settle)
    else:
        holder.begin_pause(text)
        question = new_question(holder, QuestionKind.Paused, text, choices, QuestionKey.Journal)
        asked = board.ask(question, tree, node.loop_handle, settle)
        holder.add_end_callback(resume)
        outage.add_done_callback(partial(_end_pause_of, holder, resume))
    log.error("%s", text)
    writable.add_done_callback(resume)


def _end_pause_of(
    holder: CallNode, resume: Callable[[], None], _trouble: "asyncio.Future[None]"
) -> None:
    holder.remove_end_callback(resume)
    holder.end_pause()


def _end_outage(node: CallNode, outage: "asyncio.Future[None]", answer: Answer) -> None:
    node.board.outage = None
    settle_future(outage)
    if answer.text == CANCEL:
        root_of(node).cancel_on_loop("cancelled while it could not be written down")
