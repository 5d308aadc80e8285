"""The stages of a call: which may follow which, and what each promises."""

import pytest

from treefold import CodeFunction, RunContext, Runtime
from treefold.core.errors import IllegalTransitionError
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stage import Stage


def test_every_stage_leads_to_the_end_and_only_an_ended_call_goes_back():
    for stage in Stage:
        assert Stage.Ended in stage.next or any(Stage.Ended in one.next for one in stage.next)
        assert stage is Stage.Ended or all(following >= stage for following in stage.next)


async def test_a_call_goes_through_its_stages_in_order():
    seen: list[Stage] = []

    def stage_of(node: object) -> Stage:
        assert isinstance(node, CallNode)
        return node.stage

    async def outer(ctx: RunContext) -> None:
        seen.append(stage_of(ctx.node))
        left_behind = ctx.invoke(inner)
        seen.append(stage_of(left_behind))

    async def inside(ctx: RunContext) -> None:
        seen.append(stage_of(ctx.node.parent))

    inner = CodeFunction(name="inner", callable=inside)
    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(name="outer", callable=outer, uses=[inner]))
        seen.append(stage_of(node))
        await node
        seen.append(stage_of(node))
    assert seen == [Stage.Scheduled, Stage.Running, Stage.Scheduled, Stage.Joining, Stage.Ended]


async def test_a_call_that_has_ended_does_not_begin_again():
    async def three(ctx: RunContext) -> int:
        return 3

    async with Runtime() as runtime:
        node = runtime.invoke(CodeFunction(callable=three))
        assert await node == 3
        assert isinstance(node, CallNode)
        with pytest.raises(IllegalTransitionError, match="from Ended to Running"):
            node.advance(Stage.Running)
        assert (node.stage, node.task) == (Stage.Ended, None)
