"""Trees that sleep, and questions that expire, on the workers of a shared store."""

import time

from cluster.conftest import Workers
from cluster.test_shared_runtime import eventually
from treefold import CodeFunction, Notification, RunContext, attach
from treefold.stores.postgres import PostgresStore

LONG = 3600.0
SHORT = 2.0  # seconds in which a worker gives up what only waits


async def doze(ctx: RunContext, seconds: float) -> str:
    await ctx.sleep(seconds)
    return "awake"


async def hurry(ctx: RunContext, seconds: float) -> int:
    return await ctx.ask(int, "How many?", default=7, expires=seconds, to="anna")


DOZE = CodeFunction(callable=doze, repeatable=True)
HURRY = CodeFunction(callable=hurry, repeatable=True)


def _given_up(url: str, tree: int) -> None:
    """Wait until no worker runs *tree*, which waits."""
    with PostgresStore(url) as store:

        def is_idle() -> bool:
            [row] = [row for row in store.trees() if row.id == tree]
            return row.parked and not row.driven

        eventually(is_idle, f"that tree {tree} is given up")


def test_a_sleeping_tree_is_given_up_and_woken_by_any_worker(placed: Workers):
    submitter = placed.submitter(DOZE, HURRY)
    first = placed(DOZE, HURRY)
    node = submitter.invoke(DOZE, {"seconds": SHORT})
    submitter.flush()
    _given_up(placed.url, node.id)
    placed.close(first)
    with attach(placed.url) as observer:
        [row] = observer.trees()
        wakes = row.asleep_until
        assert wakes is not None
        assert observer.questions() == []
        placed(DOZE, HURRY)
        eventually(lambda: observer.get_view(node.id).outputs == "awake", "that it is awake")
        assert time.time() >= wakes


def test_a_question_expires_on_any_worker(placed: Workers):
    submitter = placed.submitter(DOZE, HURRY)
    told: list[Notification] = []
    first = placed(DOZE, HURRY, notify=told.append)
    node = submitter.invoke(HURRY, {"seconds": SHORT})
    submitter.flush()
    _given_up(placed.url, node.id)
    placed.close(first)
    placed(DOZE, HURRY, notify=told.append)
    with attach(placed.url) as observer:
        eventually(lambda: observer.get_view(node.id).outputs == 7, "that the default is used")
    assert [one.question.to for one in told] == ["anna"]


def test_an_answer_before_the_expiry_is_the_answer(placed: Workers):
    submitter = placed.submitter(DOZE, HURRY)
    placed(DOZE, HURRY)
    node = submitter.invoke(HURRY, {"seconds": LONG})
    submitter.flush()
    with attach(placed.url) as observer:
        eventually(lambda: bool(observer.questions()), "a question")
        [question] = observer.questions()
        observer.answer(question.id, "3")
        eventually(lambda: observer.get_view(node.id).state.final, "the end")
        assert observer.get_view(node.id).outputs == 3
