"""A journal with a bit of everything: two runs that ended, and one that waits for a person."""

from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from treefold import (
    CodeFunction,
    ModelText,
    RunContext,
    Runtime,
    ThinkingPart,
    TokenUsage,
    ToolUse,
    agent,
)
from treefold.core.function import Function
from treefold.testing import ScriptedModel

TEXTS = ["The sea rises.", "The sea falls."]


async def count(ctx: RunContext, text: str) -> int:
    return len(text.split())


async def publish(ctx: RunContext, title: str) -> str:
    raise PermissionError(f"nobody may publish {title!r}")


async def deploy(ctx: RunContext) -> str:
    return await ctx.ask("Deploy?", ["yes", "no"])


counting = CodeFunction(callable=count)
publishing = CodeFunction(callable=publish)
deploying = CodeFunction(callable=deploy)


def summary(word: str) -> ScriptedModel:
    """Return a model that thinks, counts words and says *word*."""
    return ScriptedModel(
        [
            ThinkingPart(f"Count first,\nthen say {word}."),
            ModelText("I count."),
            ToolUse("c1", "count", {"text": f"{word} and {word}"}),
        ],
        word,
        usage=TokenUsage(input=10, output=5),
        price=lambda usage: Decimal(usage.total) / 1000,
    )


@agent(uses=[counting])
def summarise(text: str) -> str:
    """Say it shorter."""
    return f"Shorter: {text}"


async def report(ctx: RunContext, texts: list[str]) -> list[str]:
    first = ctx.invoke(summarise, {"text": texts[0]}, model=summary("rises"))
    other = ctx.invoke(summarise, {"text": texts[1]}, model=summary("falls"), tied_with=first)
    said = [await first, await other]
    try:
        await ctx.invoke(publishing, {"title": said[0]})
    except PermissionError:
        return said
    raise AssertionError


reporting = CodeFunction(callable=report, uses=[summarise, publishing])
FUNCTIONS: list[Function] = [reporting, publishing, deploying]


def write_small_journal(path: Path) -> None:
    """Write it: run 1 is a report with the key nightly, run 2 failed, run 3 asks."""
    with Runtime(FUNCTIONS, store=path) as runtime:
        runtime.invoke(reporting, {"texts": TEXTS}, key="nightly").result()
        with suppress(PermissionError):
            runtime.invoke(publishing, {"title": "tides"}).result()
        asking = runtime.watch(runtime.invoke(deploying), timeout=30)
        next(view for view in asking if view.questions)
