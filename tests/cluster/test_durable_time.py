"""Trees that sleep, and questions that expire, on the workers of a shared store."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.conftest import Workers
from cluster.test_shared_runtime import eventually
from notes_in_files import note, noted
from treefold import CodeFunction, Notification, RunContext, attach
from treefold.stores import Ownership
from treefold.stores.postgres import PostgresStore
from wrapped_part import WrappedPart

LONG = 3600.0
SHORT = 2.0  # seconds in which a worker gives up what only waits
BRIEF = 0.5  # seconds in which it begins to


async def doze(ctx: RunContext, seconds: float) -> str:
    await ctx.sleep(seconds)
    return "awake"


async def hurry(ctx: RunContext, seconds: float) -> int:
    return await ctx.ask(int, "How many?", default=7, expires=seconds, to="anna")


async def charge(ctx: RunContext, folder: str) -> str:
    note(folder, "charged", str(ctx.node.id))
    return "charged"


CHARGE = CodeFunction(callable=charge)


async def doze_and_charge(ctx: RunContext, folder: str) -> str:
    await ctx.sleep(BRIEF)
    return await ctx.invoke(CHARGE, {"folder": folder})


DOZE_AND_CHARGE = CodeFunction(callable=doze_and_charge, uses=[CHARGE])
DOZE = CodeFunction(callable=doze, repeatable=True)
HURRY = CodeFunction(callable=hurry, repeatable=True)


def given_up(url: str, tree: int) -> None:
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
    given_up(placed.url, node.id)
    placed.close(first)
    with attach(placed.url) as observer:
        [row] = observer.trees()
        wakes = row.asleep_until
        assert wakes is not None
        assert observer.questions() == []
        placed(DOZE, HURRY)
        eventually(lambda: observer.get_view(node.id).outputs == "awake", "that it is awake")
        assert time.time() >= wakes


class SlowReleases(PostgresStore):
    """Releases the first tree that sleeps when it has just been awake for a while."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.has_waited = threading.Event()
        drives: Any = SlowDrives(self)
        self.cluster = replace(self.cluster, drives=drives)


class SlowDrives(WrappedPart):
    def __init__(self, store: SlowReleases) -> None:
        super().__init__(store.cluster.drives)
        self._has_waited = store.has_waited

    def release(self, ownership: Ownership, **how: Any) -> bool:
        if how.get("wake_in") is not None and not self._has_waited.is_set():
            time.sleep(how["wake_in"] + BRIEF)
            self._has_waited.set()
        return self.inner.release(ownership, **how)


def test_a_tree_that_wakes_while_it_is_given_up_does_nothing_before_it_is_taken_again(
    placed: Workers, tmp_path: Path
):
    store = SlowReleases(placed.url)
    placed(DOZE_AND_CHARGE, store=store)
    node = placed.submitter(DOZE_AND_CHARGE).invoke(DOZE_AND_CHARGE, {"folder": str(tmp_path)})
    assert node.result(60) == "charged"
    assert store.has_waited.is_set()
    assert len(noted(tmp_path, "charged")) == 1


def test_a_question_expires_on_any_worker(placed: Workers):
    submitter = placed.submitter(DOZE, HURRY)
    told: list[Notification] = []
    first = placed(DOZE, HURRY, notify=told.append)
    node = submitter.invoke(HURRY, {"seconds": SHORT})
    submitter.flush()
    given_up(placed.url, node.id)
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
