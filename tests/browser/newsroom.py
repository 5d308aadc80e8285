"""A program to look at: code and agents that make a digest of a folder of texts.

Its model plays by rules, says its words at a pace that can be watched, and can be held up.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from agent_scripts import WrappedSession
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CodeFunction,
    Function,
    FunctionArg,
    HookDecision,
    ModelText,
    PreToolUseEvent,
    Provider,
    RunContext,
    ThinkingPart,
    TokenUsage,
    ToolResult,
    ToolUse,
    UserText,
)
from treefold.models import Exchange, Model, ModelEvent, ModelSettings, Session
from treefold.testing import ScriptedModel, ScriptedRequest

TEXTS: Final = Path(__file__).parents[2] / "examples" / "texts"
PRICE: Final = Decimal("0.000003")


class PacedModel(Model):
    """Says what a script says, a little at a time; nothing while ``gate`` is closed.

    It closes by itself when the word ``stops_at`` is said.
    """

    provider = Provider.OpenAI

    def __init__(self, script: ScriptedModel, pace: float = 0.0) -> None:
        self.name = script.name
        self.script = script
        self.pace = pace
        self.price = script.price
        self.gate = threading.Event()
        self.gate.set()
        self.stops_at = ""

    def open(
        self,
        system: str = "",
        functions: Sequence[Function] = (),
        settings: ModelSettings | None = None,
        *,
        exchanges: Sequence[Exchange] = (),
    ) -> Session:
        return _PacedSession(
            self, self.script.open(system, functions, settings, exchanges=exchanges)
        )


class _PacedSession(WrappedSession):
    def __init__(self, model: PacedModel, inner: Session) -> None:
        super().__init__(inner)
        self._model = model

    async def send(self, *inputs: UserText | ToolResult) -> AsyncGenerator[ModelEvent, None]:
        events = self._inner.send(*inputs)
        try:
            async for event in events:
                yield event
                if self._model.stops_at and self._model.stops_at in str(event):
                    self._model.gate.clear()
                await asyncio.sleep(self._model.pace)
                while not self._model.gate.is_set():  # noqa: ASYNC110 - set by another thread
                    await asyncio.sleep(0.005)
        finally:
            await events.aclose()


def model(pace: float = 0.0) -> PacedModel:
    """Return the model of all agents here."""
    usage = TokenUsage(input=412, cache_read=120, reasoning=64, output=96)
    script = ScriptedModel(
        _reply, name="claude-opus-4-1", usage=usage, price=lambda spent: spent.total * PRICE
    )
    return PacedModel(script, pace)


def _reply(request: ScriptedRequest) -> Any:
    results = [part for part in request.transcript if isinstance(part, ToolResult)]
    first = request.transcript[0]
    asked = first.text if isinstance(first, UserText) else ""
    if "summarise" in request.system:
        return _summary(asked, results)
    if "fact" in request.system:
        return _checked(results)
    return (
        "## Tides and mills\n\nA tide mill stores the flood behind a gate and grinds on the ebb. "
        "Because the moon rises about fifty minutes later each day, so does the miller.\n\n"
        "- The *pond* fills for six hours.\n- The wheel turns for four or five.\n"
        "- Spring tides give the longest day of work, neap tides the shortest.\n"
    )


def _summary(asked: str, results: list[ToolResult]) -> Any:
    name = asked.rpartition(" ")[2]
    if not results:
        thought = (
            f"I have been asked for a summary of {name}. I should read it before I say anything "
            "about it; the name alone tells me little."
        )
        return [
            ThinkingPart(thought),
            ModelText(f"I will read {name} first."),
            ToolUse(f"read-{name}", "read", {"name": name}),
        ]
    said = results[-1].content.strip().splitlines()
    return f"{name} is about this: {' '.join(said)[:260]} …"


def _checked(results: list[ToolResult]) -> Any:
    if not results:
        return [
            ToolUse("look-1", "look_up", {"fact": "the moon rises 50 minutes later each day"}),
            ToolUse("look-2", "look_up", {"fact": "mills had clocks of their own"}),
        ]
    return "One fact holds. The other could not be looked up: the almanac has no page on it."


def _read(ctx: RunContext, name: str) -> str:
    """Return a text by its name."""
    return (TEXTS / name).read_text("utf-8")


def _look_up(ctx: RunContext, fact: str) -> str:
    """Look a fact up in the almanac."""
    if "clocks" in fact:
        raise LookupError(f"the almanac has no page on {fact!r}")
    return "Yes: 50 minutes and 28 seconds on average."


read = CodeFunction(callable=_read, name="read", repeatable=True)
look_up = CodeFunction(callable=_look_up, name="look_up", repeatable=True)


def _agent(name: str, desc: str, arg: str, *uses: Function) -> AgentFunction:
    return AgentFunction(
        name,
        desc,
        args=[FunctionArg(arg, str, "What it is about")],
        system_prompt=f"You {name} texts.",
        user_prompt_template=f"Please {name.replace('_', ' ')} this: {{{arg}}}",
        uses=uses,
    )


summarise = _agent("summarise", "Summarise one text.", "text", read)
fact_check = _agent("fact_check", "Check what a text says.", "text", look_up)
write_digest = _agent("write_digest", "Write a digest of summaries.", "summaries")


async def _publish(ctx: RunContext, text: str) -> str:
    """Publish a text, if somebody says so."""
    word = await ctx.ask("Publish the digest on the front page?", ["publish", "hold it back"])
    return f"{word}: {len(text)} characters"


publish = CodeFunction(callable=_publish, name="publish")


async def _digest(ctx: RunContext, folder: str, names: list[str]) -> str:
    """Summarise texts in parallel, check the facts, write a digest, and publish it."""
    first = ctx.invoke(summarise, {"text": names[0]})
    rest = [ctx.invoke(summarise, {"text": name}, tied_with=first) for name in names[1:]]
    summaries = [await node for node in (first, *rest)]
    checked = await ctx.invoke(fact_check, {"text": " ".join(summaries)[:400]})
    text = await ctx.invoke(write_digest, {"summaries": "\n\n".join([*summaries, checked])})
    return await ctx.invoke(publish, {"text": text})


digest = CodeFunction(
    callable=_digest, name="digest", uses=[summarise, fact_check, write_digest, publish]
)

NAMES: Final = ["ponds.txt", "tides.txt", "wheels.txt"]
ARGS: Final = {"folder": "examples/texts", "names": NAMES}


async def ask_first(event: PreToolUseEvent) -> HookDecision | None:
    """Have a person allow what looks something up."""
    if event.tool_name == "look_up":
        return HookDecision(ask="May it look this up in the almanac?")
    return None


APPROVED: Final = {HOOK_PRE_TOOL_USE: [ask_first]}
