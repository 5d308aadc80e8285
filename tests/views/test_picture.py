"""The picture of the terminal tree in the README is one of a real run."""

import asyncio
import contextlib
import io
import os
import re
from datetime import timedelta
from decimal import Decimal
from html import unescape
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.segment import Segment, Segments
from rich.terminal_theme import TerminalTheme

from agent_scripts import StagedModel, asked, told, until
from treefold import (
    CancellationException,
    NodeState,
    NodeView,
    RunContext,
    Runtime,
    TokenUsage,
    ToolUse,
    agent,
    registries,
    tool,
)
from treefold.core.fact import replace
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.scripted import Reply
from treefold.toolbox import human_in_loop, raise_exception
from treefold.views.styled import styled_lines
from view_trees import after

PICTURE = Path(__file__).parent.parent.parent / "docs" / "pictures" / "terminal.svg"
COLUMNS, ROWS = 104, 30
DARK = TerminalTheme(
    (24, 26, 31),
    (212, 215, 221),
    [
        *[(60, 64, 72), (240, 98, 98), (120, 200, 120), (235, 190, 90)],
        *[(110, 160, 250), (205, 135, 225), (95, 200, 215), (212, 215, 221)],
    ],
)
COMMAND = "treefold run release.py:release --arg version=2.1 --store run.db"
SAYING = (
    "The\ncache\nis\nnow\nemptied\nwhen\na\nkey\nchanges.\nThat\nis\nright,\nbut\nnobody\ntests\nit"
)


with registries():  # other tests look at all the tools that there are

    @tool
    async def list_changes(version: str) -> list[str]:
        return ["parser", "cache", "docs"]

    @tool
    async def read_diff(change: str) -> str:
        if change == "docs":
            raise FileNotFoundError("no diff of docs")
        return f"--- a/{change}.py\n+++ b/{change}.py"

    @agent(uses=[read_diff, raise_exception])
    def review(change: str) -> str:
        return f"Review the change of {change}."

    @agent(uses=[human_in_loop])
    def decide(version: str) -> str:
        return f"Find out whether {version} may be released."

    @tool(uses=[list_changes, review, decide])
    async def release(ctx: RunContext, version: str) -> None:
        changes = await ctx.invoke(list_changes, {"version": version})
        first = ctx.invoke(review, {"change": changes[0]})
        for change in changes[1:]:
            model = "slow" if change == "cache" else None
            ctx.invoke(review, {"change": change}, tied_with=first, model=model)
        await ctx.invoke(decide, {"version": version})


def plays(request: ScriptedRequest) -> Reply:
    """Read, and then say what there is to say."""
    change = asked(request).rpartition(" ")[2].strip(".")
    results = told(request)
    if "whether" in asked(request):
        question = {
            "question": "Release 2.1 without a test of the cache?",
            "choices": ["yes", "no"],
        }
        return ToolUse("1", "human_in_loop", question)
    if not results:
        return ToolUse("1", "read_diff", {"change": change})
    if results[-1].is_error:
        return ToolUse("2", "raise_exception", {"msg": "there is nothing to review"})
    return "It reads numbers with a sign now, and says where one is wrong."


def in_time(view: NodeView, numbers: "count[int]") -> NodeView:
    """Return *view* as if each call had begun a while after the one before it."""
    number = next(numbers)
    start = after(0.4 * number)
    children = tuple(in_time(child, numbers) for child in view.children)
    ended = None
    if view.state.final:
        last = max((child.ended_at or start for child in children), default=start)
        ended = last + timedelta(seconds=0.9 + 0.3 * (number % 3))
    return replace(view, children=children, started_at=start, ended_at=ended)


async def moment() -> NodeView:
    """Run it as far as it goes."""
    usage, price = TokenUsage(input=1180, output=64), Decimal("0.0045")
    model = ScriptedModel(plays, usage=usage, price=lambda _: price)
    slow = StagedModel(ScriptedModel(SAYING, usage=usage, price=lambda _: price), name="slow")
    slow.rest.clear()
    models = {"default": model, "slow": slow}
    async with Runtime([release], models=models) as runtime, asyncio.timeout(60):
        node = runtime.invoke(release, {"version": "2.1"})
        await until(lambda: is_there(runtime.get_view(node.id)))
        view = runtime.get_view(node.id)
        node.cancel()
        with contextlib.suppress(CancellationException):
            await node
    return in_time(view, count())


def is_there(view: NodeView) -> bool:
    """Whether one has spoken, one speaks, one has failed and one asks."""
    match view.children:
        case (_, parser, cache, docs, NodeView(children=(asking,))):
            over = parser.state is NodeState.Success and docs.state is NodeState.Error
            return over and cache.partial == SAYING and bool(asking.questions)
        case _:
            return False


def drawn(view: NodeView) -> str:
    """Return the picture."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    console.print(Segments([Segment(f"$ {COMMAND}\n")]), end="")
    for line in styled_lines(view, COLUMNS, ROWS, after(14.2)):
        console.print(Segments([*line, Segment("\n")]), end="")
    svg = console.export_svg(title="treefold", theme=DARK, unique_id="tree")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # nothing from elsewhere
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


def words(svg: str) -> list[str]:
    """Return what there is to read, which is the same whatever version of rich has drawn it."""
    return [unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


async def test_the_picture_of_the_terminal_is_what_a_run_looks_like():
    svg = drawn(await moment())
    if "RENEW_PICTURES" in os.environ:  # as "make pictures" does
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(svg, "utf-8")
    assert words(PICTURE.read_text("utf-8")) == words(svg), "'make pictures' draws it anew"
