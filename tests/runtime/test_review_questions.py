"""Questions that nobody waits for any more."""

import asyncio

import pytest

from agent_scripts import until
from ramify import CodeFunction, NodeState, RunContext, Runtime
from ramify.core.errors import ClosedError
from support import settle


async def test_a_call_that_asks_and_returns_without_the_answer_ends_and_withdraws_the_question():
    asking: list[asyncio.Task[str]] = []

    async with asyncio.TaskGroup() as group, Runtime() as runtime, asyncio.timeout(5):

        async def impatient(ctx: RunContext) -> int:
            asking.append(group.create_task(ctx.ask("Any wishes?")))
            await until(ctx.runtime.questions)
            return 1

        node = runtime.invoke(CodeFunction(callable=impatient))
        assert await node == 1
        await settle()
        assert node.state is NodeState.Success
        assert runtime.questions() == []
        assert asking[0].cancelled()


async def test_a_call_that_has_ended_can_ask_nothing():
    contexts: list[RunContext] = []

    async def quick(ctx: RunContext) -> None:
        contexts.append(ctx)

    async with Runtime() as runtime:
        await runtime.invoke(CodeFunction(callable=quick))
        with pytest.raises(ClosedError, match="has ended"):
            async with asyncio.timeout(5):
                await contexts[0].ask("Anybody there?")
        assert runtime.questions() == []
