"""Functions for workers in processes of their own; the tests steer them by files in a folder.

A call notes in ``begun`` that it has begun, a line each, and in ``ended`` that it ended. It waits
for the file that is named like what it was called with.
"""

import asyncio
import os
import signal
from pathlib import Path

from notes_in_files import note
from treefold import RunContext, RunInfo, UserText, agent, tool
from treefold.testing import ScriptedRequest


async def _pass(folder: str, name: str) -> str:
    note(folder, "begun", name)
    while not (Path(folder) / name).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    note(folder, "ended", name)
    return name


@tool(repeatable=True)
async def look(folder: str, name: str) -> str:
    """Wait for a file; it may be done again."""
    return await _pass(folder, name)


@tool
async def send(folder: str, name: str) -> str:
    """Wait for a file; it must not be done again."""
    return await _pass(folder, name)


@agent
def say(folder: str, name: str) -> str:
    """Say something."""
    return f"{folder} {name}"


@tool(uses=[look, say])
async def survey(ctx: RunContext, folder: str, names: list[str]) -> list[str]:
    """Say something, and look, for each name."""
    found: list[str] = []
    for name in names:
        found.append(await ctx.invoke(say, {"folder": folder, "name": name}))
        found.append(await ctx.invoke(look, {"folder": folder, "name": name}))
    return found


@tool(uses=[send, look])
async def mail(ctx: RunContext, folder: str, name: str) -> str:
    """Send something, and look."""
    await ctx.invoke(send, {"folder": folder, "name": name})
    return await ctx.invoke(look, {"folder": folder, "name": f"{name}-2"})


@tool(repeatable=True)
async def ask(ctx: RunContext, text: str) -> str:
    """Ask a person."""
    return await ctx.ask(text, ["yes", "no"])


@tool(repeatable=True)
async def poison(folder: str, name: str) -> str:
    """End the process, until there is a file of that name."""
    note(folder, "deaths", name)
    if not (Path(folder) / name).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def connect(run: RunInfo) -> str:
    """Make what ``remind`` needs."""
    return f"mailer-of-{run.function}"


@tool
async def remind(ctx: RunContext[str], folder: str) -> str:
    """Note that somebody was reminded."""
    note(folder, "reminded", ctx.deps)
    return ctx.deps


@tool
async def block(seconds: float) -> None:
    """Block the event loop."""
    __import__("time").sleep(seconds)


def reply(request: ScriptedRequest) -> str:
    """Stand in for a model, and note what it was asked."""
    (prompt,) = [part.text for part in request.transcript if isinstance(part, UserText)]
    folder, _, name = prompt.partition(" ")
    note(folder, "asked", name)
    return f"said {name}"
