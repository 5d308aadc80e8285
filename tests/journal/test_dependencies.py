"""Dependencies of runs that another process resumes: made anew there, or waited for."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from journal.processes import Lives, World, failure, question_of, result
from support import wait
from treefold import (
    AgentFunction,
    CodeFunction,
    Edit,
    Node,
    RunContext,
    RunInfo,
    Runtime,
    ToolUse,
    attach,
)
from treefold.errors import DependencyError, HeldBackError
from treefold.events import TreeHeldBack
from treefold.testing import ScriptedModel, replay


class Account:
    """Notes what is paid from it, and that it was closed."""

    def __init__(self, world: World, owner: str) -> None:
        self._world = world
        self.owner = owner

    def pay(self, n: int) -> str:
        self._world.add("pay", n=n, owner=self.owner)
        return f"{self.owner} paid {n}"

    def close(self) -> None:
        self._world.add("closed")


def make(world: World, run: RunInfo) -> Account:
    world.add("made", inputs=dict(run.inputs), number=run.number, key=run.key)
    return Account(world, run.inputs["owner"])


def functions(world: World) -> CodeFunction:
    async def pay(ctx: RunContext[Account], n: int) -> str:
        return ctx.deps.pay(n)

    async def check(ctx: RunContext[Account]) -> str:
        world.die()
        return ctx.deps.owner

    paying = CodeFunction(callable=pay)
    checking = CodeFunction(callable=check, repeatable=True)

    async def work(ctx: RunContext[Account], owner: str, *, asks: bool = False) -> list[str]:
        first = await ctx.call(paying, n=1)
        second = await (ctx.ask("Sign?") if asks else ctx.call(checking))
        return [first, second, await ctx.call(paying, n=2)]

    return CodeFunction(callable=work, uses=[paying, checking])


def dies_with_a_factory(world: World) -> None:
    work = functions(world)
    with world.runtime(work, deps=partial(make, world)) as runtime:
        result(runtime.invoke(work, {"owner": "ada"}, key="job"))


def dies_with_an_object(world: World) -> None:
    work = functions(world)
    with world.runtime(work) as runtime:
        result(runtime.invoke(work, {"owner": "ada"}, key="job", deps=Account(world, "ada")))


DIES = pytest.mark.parametrize("program", [dies_with_a_factory, dies_with_an_object])
PAID = ["ada paid 1", "ada", "ada paid 2"]


@DIES
def test_another_process_makes_them_anew(world: World, lives: Lives, program: Any):
    lives.killed(program, world)
    before = world.done("made")
    work = functions(world)
    with world.runtime(work, deps=partial(make, world)) as runtime:
        [node] = runtime.recover()
        assert result(node) == PAID
        assert world.done("closed") == 1
    assert (world.done("made") - before, world.done("closed"), world.done("pay")) == (1, 1, 2)
    assert world.told("made", "inputs")[-1] == {"owner": "ada"}
    assert (world.told("made", "number")[-1], world.told("made", "key")[-1]) == (1, "job")


@DIES
def test_a_process_without_them_holds_the_run_back_and_says_so(
    world: World, lives: Lives, program: Any, caplog: pytest.LogCaptureFixture
):
    lives.killed(program, world)
    work = functions(world)
    node: Node | None = None
    for _ in range(2):
        with world.runtime(work) as runtime:
            [node] = runtime.list_toplevel()
            wait(lambda: "is held back" in caplog.text)
            assert "run 1 is held back: its dependencies came from " in caplog.text
            held_back = runtime.get_view(node.id).held_back
            assert "this process has none: give it Runtime(deps=...)" in held_back
            assert not node.state.final
    assert node is not None
    with attach(world.file) as observer:
        view = observer.get_view(node.id)
        assert view.held_back.startswith("its dependencies came from ")
    assert world.kinds(node).count(TreeHeldBack.__name__) == 1
    assert world.done("pay") == 1
    with world.runtime(work, deps=partial(make, world)) as runtime:
        [node] = runtime.recover()
        assert result(node) == PAID
        assert runtime.get_view(node.id).held_back == ""


def test_the_call_with_its_key_gives_them_again(world: World, lives: Lives):
    lives.killed(dies_with_an_object, world)
    work = functions(world)
    with world.runtime(work) as runtime:
        node = runtime.invoke(work, {"owner": "ada"}, key="job", deps=Account(world, "ada"))
        assert result(node) == PAID
    assert (world.done("pay"), world.done("closed")) == (2, 0)


def test_a_run_that_waits_for_a_person_gets_them_with_its_answer(world: World):
    work = functions(world)
    with world.runtime(work, deps=partial(make, world)) as runtime:
        runtime.invoke(work, {"owner": "ada", "asks": True})
        question_of(runtime)
    assert (world.done("made"), world.done("closed")) == (1, 1)
    with world.runtime(work, deps=partial(make, world)) as runtime:
        [node] = runtime.recover()
        question = question_of(runtime)
        assert world.done("made") == 1
        runtime.answer(question.id, "yes")
        assert result(node) == ["ada paid 1", "yes", "ada paid 2"]
    assert (world.done("made"), world.done("closed"), world.done("pay")) == (2, 2, 2)


def test_an_answer_does_not_run_it_without_them(world: World):
    work = functions(world)
    with world.runtime(work, deps=partial(make, world)) as runtime:
        runtime.invoke(work, {"owner": "ada", "asks": True})
        question_of(runtime)
    with world.runtime(work) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, "yes")
        wait(lambda: runtime.get_view(node.id).held_back)
    assert world.done("pay") == 1
    with world.runtime(work, deps=partial(make, world)) as runtime:
        [node] = runtime.recover()
        assert result(node) == ["ada paid 1", "yes", "ada paid 2"]


def test_a_run_without_dependencies_is_resumed_by_anyone(path: Path):
    async def sign(ctx: RunContext) -> str:
        return await ctx.ask("Sign?")

    signing = CodeFunction(callable=sign, repeatable=True)
    with Runtime([signing], store=path) as runtime:
        runtime.invoke(signing)
        question_of(runtime)
    with Runtime([signing], store=path, deps=object()) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, "yes")
        assert result(node) == "yes"


def test_a_factory_that_fails_in_the_next_process_fails_the_run(world: World, lives: Lives):
    lives.killed(dies_with_a_factory, world)

    def refuse(run: RunInfo) -> Account:
        raise ConnectionError("refused")

    work = functions(world)
    with world.runtime(work, deps=refuse) as runtime:
        [node] = runtime.recover()
        assert isinstance(failure(node), DependencyError)
    assert (world.done("pay"), world.done("closed")) == (1, 0)
    with world.runtime(work, deps=partial(make, world)) as runtime:
        assert result(runtime.resume(node.id)) == PAID


# Forks and replays


def test_a_fork_has_those_of_its_source_in_the_same_process(world: World):
    work = functions(world)
    with world.runtime(work) as runtime:
        node = runtime.invoke(work, {"owner": "ada"}, deps=Account(world, "ada"))
        assert result(node) == PAID
        assert result(runtime.fork(node.children[2], edit=Edit(args={"n": 3}))) == [
            "ada paid 1",
            "ada",
            "ada paid 3",
        ]


def test_a_fork_in_a_process_without_them_is_refused(world: World):
    work = functions(world)
    with world.runtime(work) as runtime:
        node = runtime.invoke(work, {"owner": "ada"}, deps=Account(world, "ada"))
        result(node)
    with world.runtime(work) as runtime:
        with pytest.raises(HeldBackError, match="this process has none"):
            runtime.fork(node.id)
        assert len(runtime.list_toplevel()) == 1
    assert world.done("pay") == 2


def test_a_replay_takes_them(world: World):
    async def rules(ctx: RunContext[Account]) -> str:
        return f"You work for {ctx.deps.owner}."

    clerk = AgentFunction("clerk", "Work.", user_prompt_template="Work.", system_prompt=rules)
    with world.runtime(clerk, models=ScriptedModel("Done."), deps=Account(world, "ada")) as runtime:
        assert result(runtime.invoke(clerk)) == "Done."
    replay([clerk], world.file, deps=Account(world, "ada")).check()
    changed = replay([clerk], world.file, deps=Account(world, "bob")).divergence
    assert "You work for bob." in str(changed)


# System prompts


def asks_twice(world: World) -> AgentFunction[..., str]:
    async def rules(ctx: RunContext[Account]) -> str:
        world.add("rules")
        return f"These are rules {world.done('rules')}."

    check = world.tool("check", dies=True, repeatable=True)
    return AgentFunction(
        "clerk", "Work.", user_prompt_template="Work.", system_prompt=rules, uses=[check]
    )


def dies_in_the_tool_of_an_agent(world: World) -> None:
    clerk = asks_twice(world)
    model = world.model(ToolUse("1", "check", {}), "Done.")
    with world.runtime(clerk, models=model) as runtime:
        result(runtime.invoke(clerk))


def test_a_resumed_agent_keeps_the_system_prompt_that_was_recorded(world: World, lives: Lives):
    lives.killed(dies_in_the_tool_of_an_agent, world)
    clerk = asks_twice(world)
    with world.runtime(clerk, models=world.model(ToolUse("1", "check", {}), "Done.")) as runtime:
        [node] = runtime.recover()
        assert result(node) == "Done."
        assert runtime.get_view(node.id).system == "These are rules 1."
    assert world.done("rules") == 1


def test_a_system_prompt_is_kept_although_nothing_was_sent_yet(world: World):
    async def rules(ctx: RunContext) -> str:
        world.add("rules")
        if world.done("rules") == 1:
            # The request waits then, after the conversation was opened.
            ctx.runtime.pause(ctx.node.id)
        return f"These are rules {world.done('rules')}."

    clerk = AgentFunction("clerk", "Work.", user_prompt_template="Work.", system_prompt=rules)
    with world.runtime(clerk, models=ScriptedModel("Done.")) as runtime:
        node = runtime.invoke(clerk)
        wait(lambda: runtime.get_view(node.id).system)
        question_of(runtime)
    with world.runtime(clerk, models=ScriptedModel("Done.")) as runtime:
        [node] = runtime.recover()
        runtime.answer(question_of(runtime).id, "resume")
        assert result(node) == "Done."
        assert runtime.get_view(node.id).system == "These are rules 1."
    assert world.done("rules") == 1
