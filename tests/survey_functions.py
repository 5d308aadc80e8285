"""The functions that ``survey_journals`` runs, and the models that they talk to.

A module like those that people write: the command runs, checks and replays it.
"""

import asyncio
import os
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from treefold import (
    HOOK_PRE_TOOL_USE,
    CodeFunction,
    HookDecision,
    PreToolUseEvent,
    RunContext,
    Runtime,
    ThinkingPart,
    TokenUsage,
    ToolResult,
    ToolUse,
    agent,
)
from treefold.testing import ScriptedModel

TEXTS: Final = ["moss", "a fern"]


async def count(ctx: RunContext, text: str) -> int:
    """Count the letters."""
    return len(text)


async def gate(ctx: RunContext, file: str) -> str:
    """Wait until a file is there."""
    while not os.path.exists(file):  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.01)
    return "open"


async def explode(ctx: RunContext, text: str) -> str:
    """Fail."""
    raise ValueError(f"cannot digest {text}")


async def choose(ctx: RunContext) -> str:
    """Ask twice."""
    return f"{await ctx.ask('Which colour?', ['red', 'blue'])} {await ctx.ask('Why?')}"


async def delete(ctx: RunContext, path: str) -> str:
    """Delete something, so to say."""
    return f"deleted {path}"


async def pay(ctx: RunContext, file: str) -> str:
    """Be in the middle of something that must not be done twice."""
    return f"paid, {await gate(ctx, file)}"


async def echo(ctx: RunContext, text: str) -> str:
    """Return what was given."""
    return text


counting = CodeFunction(callable=count)
gating = CodeFunction(callable=gate, repeatable=True)
exploding = CodeFunction(callable=explode)
choosing = CodeFunction(callable=choose, repeatable=True)
deleting = CodeFunction(callable=delete)
paying = CodeFunction(callable=pay)
echoing = CodeFunction(callable=echo)


@agent(system="You judge plants.", uses=[counting], model="judge")
def judge(text: str) -> str:
    """Judge a plant."""
    return f"How long is {text}?"


@agent(system="You tell stories.")
def tell(about: str) -> str:
    """Tell a story."""
    return f"Tell me of {about}."


@agent(system="You tidy up.", uses=[deleting], model="tidy")
def tidy(folder: str) -> str:
    """Tidy a folder."""
    return f"Tidy up {folder}."


@agent(system="You repeat.", uses=[echoing], model="parrot")
def parrot(text: str) -> str:
    """Repeat a text, by way of a tool."""
    return f"Repeat: {text}"


async def survey_(ctx: RunContext, hold: str, texts: list[str] = TEXTS) -> str:
    """Count side by side, have it judged, and wait."""
    first = ctx.invoke(counting, {"text": texts[0]})
    others = [ctx.invoke(counting, {"text": text}, tied_with=first) for text in texts[1:]]
    for node in (first, *others):
        await node
    said = await ctx.invoke(judge, {"text": texts[0]})
    await ctx.invoke(gating, {"file": hold})
    return said


async def fail_(ctx: RunContext, text: str) -> str:
    """Fail by what is below."""
    await ctx.invoke(counting, {"text": text})
    return await ctx.invoke(exploding, {"text": text})


async def settle_(ctx: RunContext, file: str) -> str:
    """Pay."""
    return await ctx.invoke(paying, {"file": file})


async def branch_(ctx: RunContext, n: int, width: int) -> int:
    """Have many counted."""
    nodes = [ctx.invoke(counting, {"text": f"{n}-{i}"}) for i in range(width)]
    return sum([await node for node in nodes])


branch = CodeFunction(callable=branch_, name="branch", uses=[counting])


async def forest_(ctx: RunContext, branches: int, width: int) -> int:
    """Have very many counted."""
    done = [await ctx.invoke(branch, {"n": n, "width": width}) for n in range(branches)]
    return sum(done)


async def watched_(ctx: RunContext, hold: str) -> int:
    """Count, and wait."""
    found = await ctx.invoke(counting, {"text": "moss"})
    await ctx.invoke(gating, {"file": hold})
    return found


watched = CodeFunction(callable=watched_, name="watched", uses=[counting, gating])
survey = CodeFunction(callable=survey_, name="survey", uses=[counting, judge, gating])
fail = CodeFunction(callable=fail_, name="fail", uses=[counting, exploding])
settle = CodeFunction(callable=settle_, name="settle", uses=[paying])
forest = CodeFunction(callable=forest_, name="forest", uses=[branch])

echo_all = CodeFunction(callable=echo, name="echo_all")

FUNCTIONS: Final = [survey, fail, choosing, tidy, settle, parrot, forest, echo_all]


def _turn(request: Any, call: ToolUse, said: str) -> Any:
    """Think and make *call* first, and then have *said* something."""
    if any(isinstance(part, ToolResult) for part in request.transcript):
        return said
    return [ThinkingPart("I had better look."), call]


def models() -> dict[str, ScriptedModel]:
    """Return models that answer by what was said to them, however often."""
    options: dict[str, Any] = {
        "usage": TokenUsage(input=100, output=20),
        "price": lambda usage: Decimal("0.0125"),
    }

    def repeat(request: Any) -> Any:
        text = request.transcript[0].text.removeprefix("Repeat: ")
        return _turn(request, ToolUse("e1", "echo", {"text": text}), text)

    return {
        "judge": ScriptedModel(
            lambda request: _turn(
                request, ToolUse("c1", "count", {"text": "moss"}), "Quite short."
            ),
            name="judge",
            **options,
        ),
        "tidy": ScriptedModel(
            lambda request: _turn(request, ToolUse("d1", "delete", {"path": "old"}), "Tidied."),
            name="tidy",
            **options,
        ),
        "parrot": ScriptedModel(repeat, name="parrot", **options),
    }


async def _ask_first(event: PreToolUseEvent) -> HookDecision | None:
    if event.tool_name == "delete":
        return HookDecision(ask=f"Really delete {event.tool_input['path']}?")
    return None


def runtime(file: Path) -> Runtime:
    """Return a runtime that drives the journal *file*."""
    return Runtime(FUNCTIONS, models=models(), store=file, hooks={HOOK_PRE_TOOL_USE: [_ask_first]})
