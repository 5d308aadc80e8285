"""Trees of every kind of call, paused, resumed, cancelled and answered at random."""

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from agent_scripts import StagedModel, asked, told, worker
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    Budget,
    CodeFunction,
    Ensemble,
    HookDecision,
    Limits,
    Node,
    Provider,
    Question,
    QuestionKind,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.core.errors import UnknownQuestionError, UsageError
from treefold.testing import ScriptedModel, ScriptedRequest


def boss(*, parallel_tools: bool) -> AgentFunction:
    """Return an agent that has an ensemble, code and a sync function call agents who ask people."""
    leaf = worker("leaf")

    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("May I?")

    sub = worker("sub", CodeFunction(callable=ask), leaf)

    async def together(ctx: RunContext) -> list[str]:
        nodes = [ctx.invoke(sub), ctx.invoke(leaf), ctx.invoke(sub)]
        return [await node for node in nodes]

    async def away(ctx: RunContext) -> str:
        async with ctx.lease_released():
            await asyncio.sleep(0)
        return "back"

    def blocking(ctx: RunContext) -> str:
        return ctx.invoke(leaf).result(60)

    return worker(
        "boss",
        CodeFunction(callable=together, uses=[sub, leaf]),
        Ensemble(sub, {"a": 2, "b": 1}),
        CodeFunction(callable=away),
        CodeFunction(callable=blocking, uses=[leaf]),
        parallel_tools=parallel_tools,
    )


def script(request: ScriptedRequest) -> Any:
    if "leaf" in asked(request) or told(request):
        return "done"
    if "sub" in asked(request):
        return [ToolUse("1", "ask"), ToolUse("2", "leaf")]
    names = ("together", "sub_ensemble", "away", "blocking")
    return [ToolUse(name, name) for name in names]


class Storm:
    """Does to a runtime, between two steps of its loop, what people and programs might do."""

    def __init__(self, seed: int, *, cancels: bool) -> None:
        self._random = random.Random(seed)
        self._cancels = cancels

    async def approve(self, event: Any) -> HookDecision | None:
        await asyncio.sleep(0)
        return HookDecision(ask="Is it allowed?") if self._random.random() < 0.3 else None

    def blow(self, runtime: Runtime, node: Node) -> None:
        kind = self._random.random()
        if kind < 0.02 and self._cancels:
            node.cancel("the storm")
        elif kind < 0.06:
            with suppress(UsageError):  # it has ended
                runtime.pause(node.id)
        for question in runtime.questions():
            if self._random.random() < 0.3:
                with suppress(UnknownQuestionError):  # an answer before it settled it, too
                    runtime.answer(question.id, self._answer(question))

    def _answer(self, question: Question) -> str:
        if question.kind is QuestionKind.Human:
            return "yes"
        often, seldom = question.choices[0], question.choices[-1]
        may = self._cancels or question.kind is QuestionKind.Approval
        return seldom if may and self._random.random() < 0.1 else often

    def choose(self, nodes: list[Node]) -> Node:
        return self._random.choice(nodes)


@pytest.mark.parametrize("seed", range(12))
async def test_every_tree_ends_and_leaves_nothing_behind(seed: int):
    limit = 1 + seed % 3
    limits = Limits(limit, per_provider={Provider.OpenAI: limit})
    storm = Storm(seed, cancels=seed % 2 == 1)
    model = StagedModel(ScriptedModel(script))
    top = boss(parallel_tools=seed % 4 >= 2)
    before = asyncio.all_tasks()
    async with (
        asyncio.timeout(60),
        Runtime(
            [top],
            models={"default": model, "a": model, "b": model},
            limits=limits,
            budget=Budget(calls=1000),
            hooks={HOOK_PRE_TOOL_USE: [storm.approve]},
        ) as runtime,
    ):
        roots = [runtime.invoke(top) for _ in range(2)]
        while running := [
            node for root in roots for node in runtime.get_subtree(root.id) if not node.state.final
        ]:
            storm.blow(runtime, storm.choose(running))
            await asyncio.sleep(0)
        if seed % 2 == 0:
            assert [root.outputs for root in roots] == ["done", "done"]
        for root in roots:
            for node in runtime.get_subtree(root.id):
                view = runtime.get_view(node.id)
                assert (view.state, view.questions) == (node.state, ())
        assert runtime.questions() == []
    assert model.most_in_flight <= limit
    assert asyncio.all_tasks() == before
    for pool in limits.pool, limits.pools[Provider.OpenAI]:
        assert [pool.try_take() for _ in range(limit + 1)] == [True] * limit + [False]
