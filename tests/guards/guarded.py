"""A program whose runs are guarded in each way, and what happens in them, in files.

``effects`` has a line for each call that was made, and ``requests`` one for each request to the
model, in the folder that the variable GUARDED names.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from treefold import (
    AgentFunction,
    Budget,
    CodeFunction,
    FunctionArg,
    HookDecision,
    ModelText,
    RunContext,
    ToolUse,
    UserText,
)
from treefold.testing import ScriptedModel

GUARDS: Final = ("function", "hook", "allowed", "disallowed", "budget")
UNGUARDED: Final = "nothing"  # which shows that a way goes on with a run if it may
BUDGET: Final = 2  # requests


def note(file: str, text: str) -> None:
    """Add a line to a file of the test."""
    path = Path(os.environ["GUARDED"]) / file
    with path.open("a") as lines:
        lines.write(f"{text}\n")


def noted(folder: Path, file: str) -> int:
    """Return how many lines a file of the test has."""
    path = folder / file
    return len(path.read_text().splitlines()) if path.exists() else 0


def _write(ctx: RunContext, text: str) -> str:
    note("effects", text)
    return "written"


def _look(ctx: RunContext) -> str:
    return "nothing"


write = CodeFunction(name="write", desc="Write.", callable=_write)
guarded_write = CodeFunction(name="guarded_write", desc="Write.", callable=_write, ask=True)
look = CodeFunction(name="look", desc="Look.", callable=_look, repeatable=True)
plan = AgentFunction(
    "plan",
    "Plan.",
    user_prompt_template="Write. {guard}",
    args=[FunctionArg("guard", str, "What guards it, for a model of many runs", optional=True)],
    uses=[write, guarded_write, look],
)
other = CodeFunction(
    name="other", desc="Do something else.", callable=lambda ctx: "other", uses=[plan]
)


def place_writes() -> None:
    """Have writes run apart from their caller if GUARDED_QUEUE names a queue."""
    write.queue = guarded_write.queue = os.environ.get("GUARDED_QUEUE") or None  # pyright: ignore[reportAttributeAccessIssue] - before the first use


place_writes()


async def approve(event: Any) -> HookDecision | None:
    """Ask a person about every write."""
    return HookDecision(ask="May it write?") if "write" in event.tool_name else None


def reply_by(known: str) -> Any:
    """Return what the model replies: it looks, writes, and is done after that.

    If what guards the run is not *known*, the prompt says it.
    """

    def reply(request: Any) -> Any:
        prompt = next(part.text for part in request.transcript if isinstance(part, UserText))
        guard = known or prompt.split()[-1]
        tool = "guarded_write" if guard == "function" else "write"
        note("requests", guard)
        said = [type(part).__name__ for part in request.transcript]
        calls = said.count("ToolUse")
        if guard == "budget":
            return [ToolUse(f"look {calls}", "look", {})] if calls < 9 else ModelText("Done.")
        if calls == 0:
            return [ToolUse("look", "look", {})]
        return [ToolUse("write", tool, {"text": "!"})] if calls == 1 else ModelText("Done.")

    return reply


def model_for(guard: str) -> ScriptedModel:
    """Return a model that replies so for ever."""
    return ScriptedModel(reply_by(guard), name="scripted")


def options_of(guard: str) -> dict[str, Any]:
    """Return the options of a runtime that guards what it runs in this way."""
    options: Mapping[str, dict[str, Any]] = {
        "hook": {"hooks": {"pre_tool_use": [approve]}},
        "allowed": {"allowed_tools": ["look"]},
        "disallowed": {"disallowed_tools": ["write"]},
        "budget": {"budget": Budget(calls=BUDGET)},
    }
    return options.get(guard, {})


def violations(folder: Path, deaths: int = 0) -> str:
    """Return what was done without a person's word; empty if nothing.

    A process that died may have sent a request whose response is not recorded.
    """
    if effects := noted(folder, "effects"):
        return f"{effects} writes"
    requests = folder / "requests"
    spent = requests.read_text().splitlines().count("budget") if requests.exists() else 0
    return f"{spent} requests" if spent > BUDGET + deaths else ""
