"""The key of a run that failed for want of something outside it: invoked again, it goes on."""

import asyncio
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from journal.processes import World, failure, question_of, result
from support import wait
from treefold import (
    AgentException,
    AgentFunction,
    Budget,
    BudgetExceeded,
    CancellationException,
    CodeFunction,
    ModelProviderException,
    NodeState,
    QuestionKind,
    RunContext,
    Runtime,
    SqliteStore,
    ToolUse,
    attach,
)
from treefold.core.errors import UsageError
from treefold.stores import export_tree, import_tree
from treefold.testing import ScriptedFailure, ScriptedModel, replay
from treefold.toolbox import raise_exception

PATIENCE: Final = 60  # seconds
DOWN: Final = ScriptedFailure(503, "the server is down")
LOOK: Final = ToolUse("1", "look", {"n": 1})
ASK: Final = ToolUse("2", "expert")


class Server:
    """Answers two agents, and is down after it has answered so many requests."""

    def __init__(self, world: World, answers: int = 99) -> None:
        self._world = world
        self._left = answers
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: Any) -> Any:
        if not self._left:
            return DOWN
        self._left -= 1
        prompt = request.transcript[0].text
        step = sum(isinstance(part, ToolUse) for part in request.transcript)
        self._world.add("paid", n=f"{prompt} {step}")
        return {"Research.": [LOOK, ASK, "found"], "Know.": [LOOK, "known"]}[prompt][step]


def job_of(world: World) -> CodeFunction:
    """Code that calls an agent, which looks and asks another agent, which looks as well."""
    look = world.tool("look")
    expert = AgentFunction("expert", "Knows.", user_prompt_template="Know.", uses=[look])
    research = AgentFunction(
        "research", "Researches.", user_prompt_template="Research.", uses=[look, expert]
    )

    async def job(ctx: RunContext) -> str:
        return await ctx.invoke(research)

    return CodeFunction(callable=job, uses=[research])


def paid_once(world: World) -> bool:
    """Whether each response was paid for once, and each tool has run once."""
    paid = world.told("paid", "n")
    return sorted(paid) == sorted(set(paid)) and world.done("look") == len([
        one for one in paid if one.endswith(" 0")
    ])


@pytest.mark.parametrize("answers", range(5))
def test_a_run_whose_provider_failed_goes_on_at_the_request_that_failed(world: World, answers: int):
    job = job_of(world)
    with world.runtime(job, models=Server(world, answers).model) as runtime:
        first = runtime.invoke(job, key="a")
        error = failure(first)
        assert isinstance(error, ModelProviderException)
        assert "invoke the key 'a' again, or 'treefold resume 1'" in str(error)
    with world.runtime(job, models=Server(world).model) as runtime:
        second = runtime.invoke(job, key="a")
        assert result(second) == "found"
        assert second.id != first.id
        assert runtime.invoke(job, key="a") is second
        assert [node.state for node in runtime.list_toplevel()] == [
            NodeState.Error,
            NodeState.Success,
        ]
    assert paid_once(world)
    assert world.done("paid") == 5
    again = replay([job], world.file, second.id)
    again.check()


@pytest.mark.parametrize("calls", range(5))
def test_a_run_without_money_goes_on_when_the_runtime_has_more(world: World, calls: int):
    job, server = job_of(world), Server(world)
    with world.runtime(job, models=server.model, budget=Budget(calls=calls)) as runtime:
        error = failure(runtime.invoke(job, key="a"))
        assert isinstance(error, BudgetExceeded)
        assert "Runtime(budget=...)" in str(error)
        assert "invoke the key 'a' again, or 'treefold resume 1'" in str(error)
    # What was spent counts: there is as much as the whole job needs, and not more.
    with world.runtime(job, models=server.model, budget=Budget(calls=5)) as runtime:
        assert result(runtime.invoke(job, key="a")) == "found"
    assert paid_once(world)
    assert world.done("paid") == 5


def test_the_budget_of_the_next_invocation_replaces_that_of_the_last(world: World):
    job, server = job_of(world), Server(world)
    with world.runtime(job, models=server.model) as runtime:
        error = failure(runtime.invoke(job, key="a", budget=Budget(calls=2)))
        assert "give more: invoke the key 'a' again, or 'treefold resume 1 --budget" in str(error)
        assert "2 of 2 requests" in str(failure(runtime.invoke(job, key="a")))  # without more
        error = failure(runtime.invoke(job, key="a", budget=Budget(calls=4)))
        assert "4 of 4 requests" in str(error)
    with world.runtime(job, models=server.model) as runtime:
        assert result(runtime.invoke(job, key="a", budget=Budget(calls=5))) == "found"
    assert paid_once(world)
    assert world.done("paid") == 5


def test_resuming_takes_a_budget_too(world: World):
    job, server = job_of(world), Server(world)
    with world.runtime(job, models=server.model) as runtime:
        first = runtime.invoke(job, budget=Budget(calls=2))
        failure(first)
        second = runtime.resume(first.id, budget=Budget(calls=3))
        assert "3 of 3 requests" in str(failure(second))
        # The one that has failed is not resumed a second time, but what became of it.
        third = runtime.resume(first.id, budget=Budget(calls=5))
        assert result(third) == "found"
        with attach(world.file) as observer:
            assert [row.source for row in observer.trees()] == [0, first.id, second.id]
        with pytest.raises(UsageError, match="not paused"):
            runtime.resume(first.id)
    assert paid_once(world)
    assert world.done("paid") == 5


def test_an_observer_resumes_with_a_budget(world: World):
    job, server = job_of(world), Server(world)
    with world.runtime(job, models=server.model) as runtime:
        first = runtime.invoke(job, key="a", budget=Budget(calls=1))
        failure(first)
        with attach(world.file) as observer:
            observer.resume(first.id, budget=Budget(calls=2))
            second = wait(lambda: new if (new := observer.newest(first.id)) != first.id else 0)
            wait(lambda: observer.get_view(second or 0).state.final)
            observer.resume(first.id, budget=Budget(calls=5))
            third = wait(lambda: new if (new := observer.newest(first.id)) != second else 0)
            wait(lambda: observer.get_view(third or 0).state is NodeState.Success)
            assert [tree.key for tree in observer.trees()] == ["a"] * 3
        assert runtime.invoke(job, key="a").id == third
    assert paid_once(world)


def test_the_outcome_of_a_tool_is_kept_and_says_how_to_run_it_again(world: World):
    def fail(ctx: RunContext) -> str:
        world.add("failed")
        raise ValueError("there is no such file")

    failing = CodeFunction(callable=fail)

    async def job(ctx: RunContext) -> str:
        return await ctx.invoke(failing)

    work = CodeFunction(callable=job, uses=[failing])
    with world.runtime(work) as runtime:
        failure(runtime.invoke(work, key="a"))
    with world.runtime(work) as runtime:
        node = runtime.invoke(work, key="a")
        error = failure(node)
        assert isinstance(error, ValueError)
        assert runtime.list_toplevel() == [node]
    [note] = error.__notes__
    assert note == (
        "this is the recorded outcome of run 1, which has the key 'a'; to make the call that failed"
        " again, runtime.fork(2) or 'treefold fork 1.1'; to begin anew, runtime.delete(1) or give"
        " another key"
    )
    assert world.done("failed") == 1


def test_the_outcome_of_an_agent_is_kept(world: World):
    give_up = ToolUse("1", "raise_exception", {"msg": "there is nothing to find"})
    agent = AgentFunction("find", "Finds.", user_prompt_template="Find.", uses=[raise_exception])
    with world.runtime(agent, models=ScriptedModel(give_up)) as runtime:
        failure(runtime.invoke(agent, key="a"))
    with world.runtime(agent, models=ScriptedModel()) as runtime:
        node = runtime.invoke(agent, key="a")
        error = failure(node)
        assert isinstance(error, AgentException)
        assert runtime.list_toplevel() == [node]
    assert "treefold fork 1'" in error.__notes__[0]


def test_a_run_that_a_person_has_cancelled_stays_so_until_it_is_resumed(world: World):
    async def wait_long(ctx: RunContext) -> str:
        world.add("wait")
        if world.done("wait") == 1:
            await asyncio.Event().wait()
        return "done"

    work = CodeFunction(callable=wait_long, repeatable=True)
    with world.runtime(work) as runtime:
        first = runtime.invoke(work, key="a")
        wait(lambda: world.done("wait"))
        first.cancel("not now")
        failure(first)
        assert runtime.invoke(work, key="a") is first
        error = failure(first)
        assert isinstance(error, CancellationException)
        assert "runtime.resume(1) or 'treefold resume 1'" in error.__notes__[0]
        second = runtime.resume(first.id)
        assert result(second) == "done"
        assert runtime.invoke(work, key="a") is second


def test_invoking_a_key_in_many_threads_at_once_continues_it_once(world: World):
    job = job_of(world)
    with world.runtime(job, models=Server(world, 2).model) as runtime:
        failure(runtime.invoke(job, key="a"))
    for _ in range(5):  # who is first is up to chance
        found: list[int] = []
        with world.runtime(job, models=Server(world).model) as runtime:

            def invoke(runtime: Runtime = runtime, found: list[int] = found) -> None:
                found.append(runtime.invoke(job, key="a").id)

            threads = [threading.Thread(target=invoke) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            assert len(found) == 10
            assert len(set(found)) == 1
            assert result(runtime.invoke(job, key="a")) == "found"
            assert len(runtime.list_toplevel()) == 2
            runtime.flush()
            runtime.delete(found[0])


def test_a_key_goes_on_as_often_as_it_has_to(world: World):
    job = job_of(world)
    for answers in (1, 1, 0, 1, 1, 0):
        with world.runtime(job, models=Server(world, answers).model) as runtime:
            failure(runtime.invoke(job, key="a"))
    with world.runtime(job, models=Server(world, 1).model) as runtime:
        assert result(runtime.invoke(job, key="a")) == "found"
    assert paid_once(world)


def test_on_the_loop_of_the_runtime_a_key_goes_on_as_well(world: World):
    job = job_of(world)

    async def main() -> str:
        async with world.runtime(job, models=Server(world, 3).model) as runtime:
            with suppress(ModelProviderException):
                await runtime.invoke(job, key="a")
        async with world.runtime(job, models=Server(world).model) as runtime:
            async with asyncio.timeout(PATIENCE):
                nodes = [runtime.invoke(job, key="a") for _ in range(3)]
                assert len(set(nodes)) == 1
                return await nodes[0]

    assert asyncio.run(main()) == "found"
    assert paid_once(world)


def test_a_group_of_failures_of_the_provider_is_one_too(world: World):
    name = AgentFunction("name_it", "Names.", user_prompt_template="Name it.")

    async def both(ctx: RunContext) -> list[str]:
        async def one() -> str:
            return await ctx.invoke(name)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for _ in range(2)]
        return [task.result() for task in tasks]

    work = CodeFunction(callable=both, uses=[name])
    with world.runtime(work, models=ScriptedModel(DOWN, DOWN)) as runtime:
        assert isinstance(failure(runtime.invoke(work, key="a")), ExceptionGroup)
    with world.runtime(work, models=ScriptedModel("Tom", "Tom")) as runtime:
        assert result(runtime.invoke(work, key="a")) == ["Tom", "Tom"]


def test_a_call_that_was_under_way_when_another_failed_is_in_doubt(world: World):
    name = AgentFunction("name_it", "Names.", user_prompt_template="Name it.")

    begun = asyncio.Event()

    async def pay(ctx: RunContext) -> str:
        world.add("pay")
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    paying = CodeFunction(callable=pay)

    async def both(ctx: RunContext) -> list[str]:
        payment = ctx.invoke(paying)
        await begun.wait()
        named = await ctx.invoke(name)
        return [named, await payment]

    work = CodeFunction(callable=both, uses=[name, paying])
    with world.runtime(work, models=ScriptedModel(DOWN)) as runtime:
        failure(runtime.invoke(work, key="a"))
    with world.runtime(work, models=ScriptedModel("Tom")) as runtime:
        node = runtime.invoke(work, key="a")
        question = question_of(runtime)
        assert question.kind is QuestionKind.InDoubt
        runtime.answer(question.id, "use: paid before")
        assert result(node) == ["Tom", "paid before"]
    assert world.done("pay") == 1


def test_without_a_store_an_agent_whose_provider_failed_goes_on():
    agent = AgentFunction("find", "Finds.", user_prompt_template="Find.")
    with Runtime([agent], models=ScriptedModel(DOWN, "found")) as runtime:
        first = runtime.invoke(agent, key="a")
        failure(first)
        second = runtime.invoke(agent, key="a")
        assert result(second) == "found"
        assert runtime.invoke(agent, key="a") is second
    with Runtime([agent], models=ScriptedModel("found")) as runtime:
        error = failure(runtime.invoke(agent, key="a", budget=Budget(calls=0)))
        assert "give more, or a smaller task" in str(error)
        runtime.invoke(agent, key="a")
        assert "without a store it cannot be continued" in error.__notes__[0]


def test_an_imported_run_goes_on_as_it_did(world: World, tmp_path: Path):
    job = job_of(world)
    with world.runtime(job, models=Server(world, 2).model) as runtime:
        failure(runtime.invoke(job, key="a"))
    with world.runtime(job, models=Server(world).model) as runtime:
        node = runtime.invoke(job, key="a")
        result(node)
    with SqliteStore(world.file) as store:
        export_tree(store, node.id, tmp_path / "a.jsonl")
    file = tmp_path / "other.db"
    echo = CodeFunction(callable=lambda ctx: 1, name="echo")
    with Runtime([echo], store=file) as runtime:
        runtime.invoke(echo).result(PATIENCE)
    with SqliteStore(file) as store:
        store.join()
        import_tree(store, tmp_path / "a.jsonl")
    with Runtime([job], store=file) as runtime:
        found = runtime.invoke(job, key="a")
        assert (found.state, found.outputs) == (NodeState.Success, "found")
        assert len(runtime.list_toplevel()) == 3


def test_a_function_that_the_runtime_was_not_given_goes_on_as_well(world: World):
    job = job_of(world)
    with world.runtime(models=Server(world, 2).model) as runtime:
        failure(runtime.invoke(job, key="a"))
    with world.runtime(models=Server(world).model) as runtime:
        assert result(runtime.invoke(job, key="a")) == "found"
    assert paid_once(world)


def test_dependencies_of_one_call_are_those_of_its_continuation(world: World):
    name = AgentFunction("name_it", "Names.", user_prompt_template="Name it.")

    async def greet(ctx: RunContext[str]) -> str:
        return f"{ctx.deps} {await ctx.invoke(name)}"

    work = CodeFunction(callable=greet, uses=[name])
    with world.runtime(work, models=ScriptedModel(DOWN)) as runtime:
        failure(runtime.invoke(work, key="a", deps="Hello"))
    with world.runtime(work, models=ScriptedModel("Tom")) as runtime:
        assert result(runtime.invoke(work, key="a", deps="Hi")) == "Hi Tom"


def test_a_run_that_fails_often_shares_its_last_attempt_only(world: World):
    job = job_of(world)
    lengths: list[int] = []
    for _ in range(6):
        with world.runtime(job, models=Server(world, 0 if lengths else 2).model) as runtime:
            node = runtime.invoke(job, key="a")
            failure(node)
            lengths.append(len(list(runtime.events(node.id))))
    growth = [later - one for one, later in pairwise(lengths[2:])]
    # That each was forked, and that two calls below were open.
    assert growth == [3, 3, 3]
    with world.runtime(job, models=Server(world).model) as runtime:
        assert result(runtime.invoke(job, key="a")) == "found"
    assert paid_once(world)
