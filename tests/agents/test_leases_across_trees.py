"""Leases, when calls wait for what is not below them, and when loops go."""

import asyncio
import subprocess
import sys
from typing import Any

from agent_scripts import worker
from treefold import CodeFunction, Limits, RunContext, Runtime, ToolUse
from treefold.testing import ScriptedModel


async def test_a_tool_that_waits_for_another_tree_lets_it_have_the_lease():
    sub = worker("sub", default_model=ScriptedModel("from the other tree"))

    async def elsewhere(ctx: RunContext) -> str:
        return await ctx.runtime.invoke(sub)

    model = ScriptedModel(ToolUse("1", "elsewhere"), "done")
    boss = worker("boss", CodeFunction(callable=elsewhere), default_model=model)
    async with asyncio.timeout(60), Runtime([boss, sub], limits=Limits(1)) as runtime:
        assert await runtime.invoke(boss) == "done"
    assert model.requests[-1].transcript[-1].content == "from the other tree"  # pyright: ignore


async def test_the_same_in_a_thread():
    sub = worker("sub", default_model=ScriptedModel("from the other tree"))

    def elsewhere(ctx: RunContext) -> str:
        return ctx.runtime.invoke(sub).result(timeout=60)

    model = ScriptedModel(ToolUse("1", "elsewhere"), "done")
    boss = worker("boss", CodeFunction(callable=elsewhere), default_model=model)
    async with asyncio.timeout(60), Runtime([boss, sub], limits=Limits(1)) as runtime:
        assert await runtime.invoke(boss) == "done"
    assert model.requests[-1].transcript[-1].content == "from the other tree"  # pyright: ignore


CLOSED = """
import asyncio
from treefold import AgentFunction, Limits, Runtime
from treefold.testing import HANGS, ScriptedModel

limits = Limits(1)
lost = AgentFunction("lost", "", user_prompt_template="x", default_model=ScriptedModel(HANGS))
found = AgentFunction("found", "", user_prompt_template="x", default_model=ScriptedModel("here"))

async def begin():
    runtime = Runtime([lost], limits=limits)
    await runtime.__aenter__()
    node = runtime.invoke(lost)
    while not node.context or not node.context.has_lease:
        await asyncio.sleep(0)

async def later():
    async with asyncio.timeout(60), Runtime([found], limits=limits) as runtime:
        return await runtime.invoke(found)

loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
tasks = asyncio.all_tasks(loop)
loop.close()
print(asyncio.run(later()))
"""


def test_a_loop_that_is_closed_over_a_request_does_not_keep_the_lease():
    command = [sys.executable, "-c", CLOSED]  # Python complains there of what was left
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "here\n"


async def test_a_tool_that_wants_to_end_the_program_is_a_failed_call():
    def leave(ctx: RunContext) -> None:
        raise SystemExit(3)

    model = ScriptedModel(ToolUse("1", "leave"), "I stay.")
    stubborn = worker("stubborn", CodeFunction(callable=leave), default_model=model)
    async with asyncio.timeout(60), Runtime([stubborn]) as runtime:
        assert await runtime.invoke(stubborn) == "I stay."
    result: Any = model.requests[-1].transcript[-1]
    assert (result.content, result.is_error) == ("SystemExit: 3", True)
