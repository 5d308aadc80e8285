"""Errands that need somebody, and a program that drives them.

``python errands.py run.db NAME ...`` begins the errands of those names, goes on with what is open
in the journal, says "ready", and ends when its stdin does.
"""

import asyncio
import json
import logging
import sys
from typing import Any

from treefold import (
    HookDecision,
    PreToolUseEvent,
    RunContext,
    Runtime,
    ToolUse,
    agent,
    registries,
    tool,
)
from treefold.core.decisions import HOOK_PRE_TOOL_USE
from treefold.core.transcript import ToolResult, UserText
from treefold.testing import ScriptedModel, ScriptedRequest

with registries():  # they are nobody else's

    @tool(repeatable=True)
    async def deploy(ctx: RunContext, where: str = "here") -> str:
        """Deploy if somebody says so."""
        said = await ctx.ask(f"Deploy {where}?\x1b[2J", ["yes", "no"])
        return f"{where}: {said}"

    @tool
    async def pay(amount: int, seconds: float = 0) -> str:
        """Pay, which is not to be done twice."""
        await asyncio.sleep(seconds)
        return f"paid {amount}"

    def shop(request: ScriptedRequest) -> Any:
        """Stand in for a model: pay, and tell what came of that and what was wanted."""
        said = [part for part in request.transcript if isinstance(part, UserText | ToolResult)]
        if len(said) == 1:
            return ToolUse("1", "pay", {"amount": 5})
        wanted, came = said[0], said[-1]
        assert isinstance(wanted, UserText)
        assert isinstance(came, ToolResult)
        return f"{wanted.text} It {json.dumps(came.content)}."

    @agent(uses=[pay], model=ScriptedModel(shop))
    def buy(what: str = "a boat") -> str:
        """Buy something."""
        return f"Buy {what}."

    @tool(repeatable=True)
    async def step(n: int) -> int:
        """Take a step."""
        await asyncio.sleep(0.01)
        return n

    @tool(uses=[step])
    async def walk(ctx: RunContext, steps: int = 100_000) -> int:
        """Take many steps."""
        if steps < 0:
            raise ValueError("nobody walks backwards")
        for n in range(steps):
            await ctx.invoke(step, {"n": n})
        return steps


async def ask_first(event: PreToolUseEvent) -> HookDecision:
    return HookDecision(ask=f"Pay {event.tool_input['amount']}?")


ARGS: dict[str, dict[str, Any]] = {"pay": {"amount": 9, "seconds": 3600}}
FUNCTIONS = [deploy, pay, buy, walk]


def main(path: str, names: list[str]) -> None:
    logging.basicConfig(stream=sys.stderr)
    hooks = {HOOK_PRE_TOOL_USE: [ask_first]}
    runtime = Runtime(FUNCTIONS, store=path, hooks=hooks)
    runtime.recover()
    for name in names:
        runtime.invoke(runtime.invocable_functions[name], ARGS.get(name, {}))
    print("ready", flush=True)  # noqa: T201 - it is what the test waits for
    sys.stdin.read()
    runtime.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
