"""Wait for a person: without a lease, for as long as it takes."""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial

from ramify.core.errors import ClosedError, StoreError
from ramify.core.events import QuestionAsked
from ramify.core.question import CANCEL, REPORT, RESUME, Answer, Question, QuestionKind
from ramify.runtime.home import settle as settle_future
from ramify.runtime.leases import give_up_lease
from ramify.runtime.node import CallNode
from ramify.runtime.walk import root_of

log = logging.getLogger(__name__)


async def ask(node: CallNode, kind: QuestionKind, text: str, choices: Sequence[str] = ()) -> Answer:
    """Ask a person, and wait for the answer; *node* is Paused meanwhile.

    Raises:
        ClosedError: *node* has ended; if it ends meanwhile, the wait is cancelled.
    """
    if node.state.final:
        raise ClosedError(f"{node!r} has ended, and waits for no answer any more")
    if (known := _known_answer(node, kind, text, choices)) is not None:
        return known
    answered: asyncio.Future[Answer] = node.home.loop.create_future()

    def settle(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def leave() -> None:
        node.desk.close(question.id)
        answered.cancel()

    if not node.tree.kept:  # and nobody can look into the runtime that it is in
        log.warning("%r asks %r, and nobody can answer it: use it in a Runtime", node, text)
    give_up_lease(node)
    node.stop(text)  # before anybody can see the question
    question = node.desk.ask(node.id, node.tree, node.home, kind, text, choices, settle)
    node.when_ended(leave)
    try:
        answer = await answered
    finally:
        node.wake_no_more(leave)
        node.desk.close(question.id)
        node.go_on()
    if node.tree.journal is not None:
        await node.tree.journal.saved(node)
    return answer


def _known_answer(
    node: CallNode, kind: QuestionKind, text: str, choices: Sequence[str]
) -> Answer | None:
    """Return what somebody said when an earlier process asked the same, if that still counts.

    That a paused call go on was for that one time, unless it is the failure of a call that is
    known, too.
    """
    answers = node.record.answers if node.record is not None else []
    written = node.tree.as_written(text) if answers else text
    for number, (question, answer) in enumerate(answers):
        if (question.kind, question.text) != (kind, written):
            continue
        if kind is not QuestionKind.Paused or REPORT in choices:
            del answers[number]
            return answer
    return None


async def pause(node: CallNode, why: str, choices: Sequence[str] = ()) -> str:
    """Stand still until a person says how to go on: resume, or one of *choices*.

    Being told to cancel cancels *node*, and does not return.
    """
    answer = await ask(node, QuestionKind.Paused, why, (RESUME, *choices, CANCEL))
    if answer.text == CANCEL:
        node.cancel_here(f"cancelled while it was paused: {why}")
        await asyncio.sleep(0)  # raises
    return answer.text


async def wait_for_help(node: CallNode, error: StoreError) -> None:
    """Wait until a person says that the journal can be written again, or cancels the tree.

    One question is enough for all that wait; it is nowhere but in this process.
    """
    desk = node.desk
    node.stop(str(error), show=node.tree.show)
    try:
        if desk.trouble is None:
            desk.trouble = node.home.loop.create_future()
            _ask_for_help(node, desk.trouble, error)
        await asyncio.shield(desk.trouble)
    finally:
        node.go_on(show=node.tree.show)


def _ask_for_help(node: CallNode, trouble: "asyncio.Future[None]", error: StoreError) -> None:
    desk = node.desk
    desk.troubles += 1
    text = f"{error}; nothing goes on until it can be written: see to that, then resume"
    question = Question(
        id=f"journal-{desk.troubles}",
        node_id=node.id,
        kind=QuestionKind.Paused,
        text=text,
        choices=(RESUME, CANCEL),
    )
    desk.put(question, node.tree.show, node.home, partial(_helped, node, trouble))
    node.tree.show(QuestionAsked(node.id, time.time(), question))
    log.error("%s", text)


def _helped(node: CallNode, trouble: "asyncio.Future[None]", answer: Answer) -> None:
    node.desk.trouble = None
    settle_future(trouble)
    if answer.text == CANCEL:
        root_of(node).cancel_here("cancelled while it could not be written down")
