"""Sleeps and the times of questions, which outlive the program that began them."""

import asyncio
import signal
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from crash.program import FatalStore
from journal.processes import EXHAUSTIVE, Lives, World, question_of, result
from support import wait
from treefold import (
    Budget,
    BudgetExceeded,
    CodeFunction,
    NodeState,
    RunContext,
    Runtime,
    SqliteStore,
    attach,
)
from treefold.core.store import Message
from treefold.errors import CallTimeoutError, InvalidValueError, QuestionExpiredError
from treefold.stores.checksums import of_timer

LONG = 3600.0


def at(world: World) -> datetime:
    """Return the time that the calls of a world wait for, as long from now as was set."""
    return datetime.now(UTC) + timedelta(seconds=float((world.folder / "delay").read_text()))


def set_delay(world: World, seconds: float) -> None:
    """Set how long the calls of a world wait; what they have recorded stays as it is."""
    (world.folder / "delay").write_text(str(seconds))


def sleeper(world: World) -> CodeFunction:
    async def sleep(ctx: RunContext) -> str:
        world.add("run")
        await ctx.sleep(0)
        await ctx.sleep_until(at(world))
        world.add("woken")
        return "awake"

    return CodeFunction(callable=sleep, repeatable=True)


def kept_asleep(world: World) -> float:
    """Wait until the journal has a tree that sleeps, and return when it wakes."""
    with SqliteStore(world.file) as store:
        [tree] = wait(lambda: [row for row in store.trees() if row.asleep_until is not None])
        assert tree.parked
        assert tree.asleep_until is not None
        return tree.asleep_until


def dies_asleep(world: World) -> None:
    sleep = sleeper(world)
    with world.runtime(sleep) as runtime:
        runtime.invoke(sleep)
        kept_asleep(world)
        world.die()


def test_a_call_sleeps_on_in_the_next_process_until_its_time(world: World, lives: Lives):
    set_delay(world, 6.0)  # in which it dies, however busy the machine is
    lives.killed(dies_asleep, world)
    wakes = kept_asleep(world)
    set_delay(world, LONG)  # what counts is the time that is recorded
    sleep = sleeper(world)
    with world.runtime(sleep) as runtime:
        [node] = runtime.recover()
        assert result(node) == "awake"
        assert time.time() >= wakes
    assert (world.done("run"), world.done("woken")) == (2, 1)


def test_nothing_of_a_sleeping_tree_runs_before_its_time(world: World, lives: Lives):
    set_delay(world, LONG)
    lives.killed(dies_asleep, world)
    sleep = sleeper(world)
    with world.runtime(sleep) as runtime:
        step = world.tool("another")
        result(runtime.invoke(step))  # something else runs meanwhile
        [node] = runtime.recover()
        assert node.state is NodeState.Paused
        assert runtime.questions() == []
        assert world.done("run") == 1
        node.cancel()
        wait(lambda: node.state.final)
    assert world.done("woken") == 0


def test_a_call_whose_time_has_come_meanwhile_goes_on_at_once(world: World, lives: Lives):
    set_delay(world, 2.0)
    lives.killed(dies_asleep, world)
    wait(lambda: time.time() > kept_asleep(world))
    sleep = sleeper(world)
    with world.runtime(sleep) as runtime:
        [node] = runtime.recover()
        assert result(node) == "awake"


def test_leaving_a_runtime_does_not_wait_for_those_who_sleep(tmp_path: Path):
    world = World(tmp_path)
    set_delay(world, LONG)
    sleep = sleeper(world)
    with world.runtime(sleep) as runtime:
        node = runtime.invoke(sleep)
        wait(lambda: node.state is NodeState.Paused and world.kinds(1)[-1] == "CallPaused")
    kept_asleep(world)


def test_a_time_limit_ends_a_call_that_sleeps_or_asks_in_the_next_process(world: World):
    set_delay(world, LONG)

    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Why?")

    functions = [sleeper(world), CodeFunction(callable=ask, repeatable=True)]
    limits: list[dict[str, Any]] = [{"timeout": 1.5}, {"budget": Budget(seconds=1.5)}]
    with world.runtime(*functions) as runtime:
        for function in functions:
            for limit in limits:
                runtime.invoke(function, **limit)
    with SqliteStore(world.file) as store:
        assert [row.parked for row in store.trees()] == [True] * 4
    with world.runtime(*functions) as runtime:
        nodes = runtime.recover()
        wait(lambda: all(node.state is NodeState.Error for node in nodes))
        kinds = [type(node.exception) for node in nodes]
        assert kinds == [CallTimeoutError, BudgetExceeded] * 2


def test_a_thousand_sleeping_trees_are_neither_loaded_nor_looked_at_one_by_one(tmp_path: Path):
    many, soon = 1_000, 3

    async def doze(ctx: RunContext, n: int) -> int:
        await ctx.sleep(LONG)
        return n

    function = CodeFunction(callable=doze, repeatable=True)
    path = tmp_path / "run.db"
    with Runtime([function], store=SqliteStore(path, synchronous="NORMAL")) as runtime:
        for n in range(many):
            runtime.invoke(function, {"n": n})
        timers = runtime.store.timers if runtime.store else list[int]
        wait(lambda: len(timers()) == many)
    with closing(sqlite3.connect(path)) as rows, rows:
        now = time.time()
        for node, id in rows.execute(
            "SELECT node, id FROM timers WHERE node <= ?", (soon,)
        ).fetchall():
            crc = of_timer(node, id, now, sleeps=True)
            rows.execute("UPDATE timers SET due = ?, crc = ? WHERE id = ?", (now, crc, id))
    loaded: list[int] = []

    class Counting(SqliteStore):
        polls = 0

        def inbox(self, **which: Any) -> list[Message]:
            self.polls += 1
            return super().inbox(**which)

        def entries(self, tree: int, *, after: int = 0) -> Any:
            loaded.append(tree)
            return super().entries(tree, after=after)

    with Counting(path) as store, Runtime([function], store=store):
        wait(lambda: len(loaded) == soon)
        polls = store.polls
        wait(lambda: store.polls > polls + 3)
        assert sorted(loaded) == [1, 2, 3]


def week(world: World) -> CodeFunction:
    step = world.tool("step", repeatable=True)

    async def work(ctx: RunContext) -> list[Any]:
        await ctx.sleep(0.03)
        first = await ctx.invoke(step, {"n": 1})
        nobody = await ctx.ask(int, "How many?", default=7, expires=0.03, to="nobody")
        await ctx.sleep(0.03)
        anna = await ctx.ask(Trip, "Where to?", to="anna", expires=LONG)
        return [first, nobody, anna.city, await ctx.invoke(step, {"n": 2})]

    return CodeFunction(callable=work, uses=[step])


def lives_on(world: World) -> None:
    """Go on with the tree, and be killed just before or after the commit that the file names."""
    moment, number = (world.folder / "kill").read_text().split()
    function = week(world)
    store = FatalStore(str(world.file), moment, int(number))
    told = lambda one: world.add("told", to=one.question.to, id=one.question.id)  # noqa: E731
    with Runtime([function], store=store, notify=told) as runtime:
        node = runtime.invoke(function, key="week")
        while not node.state.final:
            for question in runtime.questions():
                if question.to == "anna" and question.notified:
                    runtime.answer(question.id, {"city": "Rome"})
            time.sleep(0.001)
        world.add("result", value=node.result())


def live_and_die(world: World, lives: Lives, number: int) -> bool:
    """Kill the program at its commit *number*, and let it go on; False if it has fewer."""
    moment = "after" if number % 2 else "before"
    (world.folder / "kill").write_text(f"{moment} {number}")
    life = lives.run(lives_on, world)
    was_killed = life.status == -signal.SIGKILL
    if was_killed:
        (world.folder / "kill").write_text("never 0")
        life = lives.run(lives_on, world)
    assert life.status == 0, f"{number}: {life.complaints}"
    assert world.told("result", "value") == [["step 1", 7, "Rome", "step 2"]]
    assert "anna" in world.told("told", "to")
    return was_killed


def test_killed_at_a_commit_it_sleeps_asks_and_tells_as_if_nothing_had_happened(
    world: World, lives: Lives
):
    for number in range(1, 100, 1 if EXHAUSTIVE else 3):
        folder = world.folder / str(number)
        folder.mkdir()
        place = World(folder)
        if not live_and_die(place, lives, number):
            assert number > 8  # there were some commits
            assert sorted(place.told("told", "to")) == ["anna", "nobody"]
            return
    pytest.fail("it never came to its end")


# Questions


class Trip(BaseModel):
    city: str

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        if city == "Atlantis":
            raise ValueError("there is no such city")
        return city


def traveller(world: World) -> CodeFunction:
    async def travel(ctx: RunContext) -> str:
        world.add("run")
        trip = await ctx.ask(Trip, "Where to?", to="anna", escalate={"team": at(world)})
        return trip.city

    return CodeFunction(callable=travel, repeatable=True)


def dies_asking(world: World) -> None:
    travel = traveller(world)
    with world.runtime(travel) as runtime:
        runtime.invoke(travel)
        world.kept_questions()
        world.die()


def test_an_answer_is_checked_in_a_process_that_does_not_have_the_type(world: World, lives: Lives):
    set_delay(world, LONG)
    lives.killed(dies_asking, world)
    with attach(world.file) as observer:
        [question] = observer.questions()
        assert question.form == Trip.model_json_schema()
        with pytest.raises(InvalidValueError, match="city is missing"):
            observer.answer(question.id, "{}")
        assert observer.questions() == [question]
        # Only the program knows that there is no such city: it asks again.
        observer.answer(question.id, {"city": "Atlantis"})
    travel = traveller(world)
    with world.runtime(travel) as runtime:
        again = wait(lambda: [q for q in runtime.questions() if "no such city" in q.text])[0]
        assert again.id != question.id
        runtime.answer(again.id, '{"city": "Rome"}')
        [node] = runtime.recover()
        assert result(node) == "Rome"


def test_an_answer_of_another_process_that_the_program_refuses_leaves_the_question_open(
    world: World,
):
    set_delay(world, LONG)
    travel = traveller(world)
    with world.runtime(travel) as runtime, attach(world.file) as observer:
        node = runtime.invoke(travel)
        [question] = world.kept_questions()
        observer.answer(question.id, {"city": "Atlantis"})
        why = wait(lambda: observer.refusal(question.id))
        assert "there is no such city" in why
        wait(lambda: observer.questions() == [question])
        observer.answer(question.id, {"city": "Rome"})
        assert result(node) == "Rome"


def test_a_program_that_asks_for_another_type_than_before_shows_another_form(world: World):
    def asking(kind: Any) -> CodeFunction:
        async def ask(ctx: RunContext) -> Any:
            return await ctx.ask(kind, "How much?")

        return CodeFunction(callable=ask, repeatable=True)

    with world.runtime(asking(int)) as runtime:
        runtime.invoke(runtime.invocable_functions["ask"])
    [question] = world.kept_questions()
    with world.runtime(asking(list[str])) as runtime:
        runtime.answer(question.id, "3")  # it is parked, so that nobody knows better
        again = wait(lambda: [q for q in runtime.questions() if q.form != question.form])[0]
        runtime.answer(again.id, ["much"])
        [node] = runtime.recover()
        assert result(node) == ["much"]


def test_an_open_question_gets_the_form_of_the_new_code(world: World):
    def asking(kind: Any) -> CodeFunction:
        async def ask(ctx: RunContext) -> Any:
            async with asyncio.TaskGroup() as group:
                one = group.create_task(ctx.ask("Why?"))
                other = group.create_task(ctx.ask(kind, "How much?"))
            return [one.result(), other.result()]

        return CodeFunction(callable=ask, repeatable=True)

    with world.runtime(asking(int)) as runtime:
        runtime.invoke(runtime.invocable_functions["ask"])
    why, much = world.kept_questions(2)
    with world.runtime(asking(list[str])) as runtime:
        runtime.answer(why.id, "so")
        again = wait(lambda: [q for q in runtime.questions() if q.form != much.form])[0]
        assert again.id == much.id
        runtime.answer(much.id, ["much"])
        [node] = runtime.recover()
        assert result(node) == ["so", ["much"]]


def test_a_question_goes_to_somebody_else_in_the_next_process(world: World, lives: Lives):
    set_delay(world, 1.0)
    lives.killed(dies_asking, world)
    travel = traveller(world)
    told: list[str] = []
    notify = lambda notification: told.append(notification.question.to)  # noqa: E731
    with world.runtime(travel, notify=notify) as runtime:
        wait(lambda: [q for q in runtime.questions() if q.to == "team"])
        wait(lambda: told == ["anna", "team"])
        runtime.answer(question_of(runtime).id, {"city": "Rome"})
        [node] = runtime.recover()
        assert result(node) == "Rome"


def hasty(world: World, **options: Any) -> CodeFunction:
    async def hurry(ctx: RunContext) -> int:
        return await ctx.ask(int, "How many?", expires=at(world), **options)

    return CodeFunction(callable=hurry, repeatable=True)


def dies_in_a_hurry(world: World) -> None:
    hurry = hasty(world, default=7)
    with world.runtime(hurry) as runtime:
        runtime.invoke(hurry)
        world.kept_questions()
        world.die()


def test_a_question_expires_in_the_next_process_with_its_default(world: World, lives: Lives):
    set_delay(world, 1.0)
    lives.killed(dies_in_a_hurry, world)
    hurry = hasty(world, default=7)
    with world.runtime(hurry) as runtime:
        [node] = runtime.recover()
        assert result(node) == 7
        assert runtime.questions() == []


def test_a_question_that_expired_while_no_process_ran_cannot_be_waited_for(
    world: World, lives: Lives
):
    set_delay(world, 1.0)
    lives.killed(dies_in_a_hurry, world)
    [question] = world.kept_questions()
    expires = question.expires
    assert expires is not None
    wait(lambda: time.time() > expires)
    hurry = hasty(world)
    with world.runtime(hurry) as runtime:
        [node] = runtime.recover()
        with pytest.raises(QuestionExpiredError):
            result(node)


def test_an_answer_that_was_given_in_time_counts_although_it_is_read_later(
    world: World, lives: Lives
):
    set_delay(world, 1.0)
    lives.killed(dies_in_a_hurry, world)
    [question] = world.kept_questions()
    with attach(world.file) as observer:
        observer.answer(question.id, "3")
    expires = question.expires
    assert expires is not None
    wait(lambda: time.time() > expires)
    hurry = hasty(world, default=7)
    with world.runtime(hurry) as runtime:
        [node] = runtime.recover()
        assert result(node) == 3
