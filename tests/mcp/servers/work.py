"""Functions to serve: they print, fail, take long, ask, and call each other."""

import asyncio
import subprocess
from pathlib import Path

from treefold import AgentFunction, FunctionArg, RunContext, ToolUse, tool
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.toolbox import Bash

print("this module says hello")  # noqa: T201 - that is the point
subprocess.run("echo and so does a program", shell=True, check=True)

__all__ = ["ask_colour", "chatter", "double", "fail", "leave", "many", "nap", "planner", "remember"]


@tool(repeatable=True)
async def double(n: int) -> int:
    """Double a number.

    Args:
        n: the number.
    """
    return 2 * n


@tool
async def chatter() -> dict[str, str]:
    """Print a lot."""
    print("chatter, chatter")  # noqa: T201 - that is the point
    subprocess.run("echo programs chatter, too; cat", shell=True)  # noqa: ASYNC221 - it is quick
    return {"said": "enough"}


@tool
async def fail() -> None:
    """Fail."""
    raise LookupError("the key is under no mat")


@tool
async def leave() -> None:
    """Try to end the process."""
    raise SystemExit(3)


@tool
async def remember() -> None:
    """Return nothing."""


shell = Bash(name="shell")


@tool(uses=[shell])
async def nap(ctx: RunContext, folder: str) -> str:
    """Sleep in a folder, for long, and note there when it begins and ends."""
    Path(folder, "began").write_text("now")  # noqa: ASYNC240 - it is quick
    try:
        return await ctx.invoke(shell, {"command": f"cd {folder}; sleep 300", "timeout": 400})
    finally:
        Path(folder, "ended").write_text("cancelled")  # noqa: ASYNC240 - it is quick


@tool(uses=[double])
async def many(ctx: RunContext, n: int) -> list[int]:
    """Double the numbers below n, one by one."""
    doubled: list[int] = []
    for each in range(n):
        doubled.append(await ctx.invoke(double, {"n": each}))
        await asyncio.sleep(0.02)
    return doubled


@tool
async def ask_colour(ctx: RunContext) -> str:
    """Ask a person for a colour."""
    return f"it is {await ctx.ask('Which colour?', ['red', 'blue'])}"


def plan(request: ScriptedRequest) -> ToolUse | str:
    last = request.transcript[-1]
    content = getattr(last, "content", None)
    return ToolUse("1", "double", {"n": 21}) if content is None else f"the answer is {content}"


planner = AgentFunction(
    "planner",
    "Plans.",
    args=[FunctionArg("goal", str)],
    user_prompt_template="Reach {goal}",
    uses=[double],
    default_model=ScriptedModel(plan),
)
