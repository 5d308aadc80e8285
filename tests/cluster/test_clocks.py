"""Workers whose clocks differ: all of them go by the clock of the database."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from cluster.conftest import Workers, on
from cluster.test_durable_time import given_up
from cluster.test_shared_runtime import eventually
from treefold import Budget, CodeFunction, RunContext, attach

HOUR = 3600.0
LIMIT = 120.0  # seconds; nothing here takes as long
SHORT = 2.0  # seconds in which a worker gives up what only waits

SetClock = Callable[[float], None]


async def wonder(ctx: RunContext, expires: float | None = None) -> str:
    if expires is None:
        answer = await ctx.ask(str, "Who is it?")
    else:
        answer = await ctx.ask(str, "Who is it?", default="nobody", expires=expires)
    await ctx.sleep(0.01)
    return answer


async def doze(ctx: RunContext) -> str:
    await ctx.sleep(SHORT)
    return "awake"


WONDER = CodeFunction(callable=wonder, repeatable=True)
DOZE = CodeFunction(callable=doze, repeatable=True)


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Set the clock of this process so many seconds ahead, or back."""
    right = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: right() + seconds)


CASES = {
    "timeout": lambda one: one.invoke(WONDER, timeout=LIMIT),
    "budget": lambda one: one.invoke(WONDER, budget=Budget(seconds=LIMIT)),
    "expiry": lambda one: one.invoke(WONDER, {"expires": LIMIT}),
}


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
@pytest.mark.parametrize("case", CASES)
def test_time_limits_are_kept_by_the_clock_of_the_database(
    workers: Workers, set_clock: SetClock, case: str, seconds: float
):
    first = workers(WONDER)
    began = datetime.now(UTC)
    node = CASES[case](first)
    eventually(lambda: first.questions(), "a question")
    workers.close(first)
    set_clock(seconds)
    second = workers(WONDER)
    eventually(lambda: second.questions(), "the same question")
    [question] = second.questions()
    second.answer(question.id, "it is me")
    eventually(lambda: second.get_view(node.id).state.final, "the end")
    view = second.get_view(node.id)
    assert view.outputs == "it is me"
    # It is shown as long as it took.
    assert view.ended_at is not None
    assert timedelta() < view.ended_at - began < timedelta(seconds=LIMIT)


@on("temporal", "procrastinate")
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_sleep_ends_in_time_on_a_worker_whose_clock_is_wrong(
    placed: Workers, set_clock: SetClock, seconds: float
):
    first = placed(DOZE)
    submitter = placed.submitter(DOZE)
    node = submitter.invoke(DOZE)
    submitter.flush()
    given_up(placed.url, node.id)
    placed.close(first, submitter)
    with attach(placed.url) as observer:
        [row] = observer.trees()
        assert row.asleep_until is not None
        set_clock(seconds)
        placed(DOZE)
        eventually(lambda: observer.get_view(node.id).outputs == "awake", "that it is awake")
        set_clock(0.0)
        assert time.time() >= row.asleep_until


def test_a_sleep_that_begins_on_a_worker_whose_clock_is_wrong_is_no_longer(
    workers: Workers, set_clock: SetClock
):
    set_clock(HOUR)
    first = workers(DOZE)
    node = first.invoke(DOZE)
    with attach(workers.url) as observer:
        eventually(lambda: any(row.asleep_until for row in observer.trees()), "that it sleeps")
    workers.close(first)
    set_clock(0.0)
    second = workers(DOZE)
    eventually(lambda: second.get_view(node.id).outputs == "awake", "that it is awake")
