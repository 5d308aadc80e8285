"""Wait for a person: without a lease, for as long as it takes."""

import asyncio
import logging
from collections.abc import Sequence

from ramify.core.errors import ClosedError
from ramify.core.question import CANCEL, RESUME, Answer, QuestionKind
from ramify.runtime.leases import give_up_lease
from ramify.runtime.node import CallNode

log = logging.getLogger(__name__)


async def ask(node: CallNode, kind: QuestionKind, text: str, choices: Sequence[str] = ()) -> Answer:
    """Ask a person, and wait for the answer; *node* is Paused meanwhile.

    Raises:
        ClosedError: *node* has ended; if it ends meanwhile, the wait is cancelled.
    """
    if node.state.final:
        raise ClosedError(f"{node!r} has ended, and waits for no answer any more")
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
    question = node.desk.ask(node.id, node.tree, node.home, kind, text, choices, settle)
    node.stop(text)
    node.when_ended(leave)
    try:
        return await answered
    finally:
        node.wake_no_more(leave)
        node.desk.close(question.id)
        node.go_on()


async def pause(node: CallNode, why: str, choices: Sequence[str] = ()) -> str:
    """Stand still until a person says how to go on: resume, or one of *choices*.

    Being told to cancel cancels *node*, and does not return.
    """
    answer = await ask(node, QuestionKind.Paused, why, (RESUME, *choices, CANCEL))
    if answer.text == CANCEL:
        node.cancel_here(f"cancelled while it was paused: {why}")
        await asyncio.sleep(0)  # raises
    return answer.text
