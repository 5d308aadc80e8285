"""A program whose journal has something of everything, for reading journals of older versions.

``python tests/journal/varied_program.py FILE`` runs it twice, killing it both times, and prints
what an observer sees then. That is how ``recorded/version-1.db.gz`` and ``version-1.json`` were
made.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from treefold import (
    HOOK_PRE_TOOL_USE,
    Agent,
    AgentFunction,
    AgentOptions,
    Client,
    CodeFunction,
    Edit,
    Ensemble,
    HookDecision,
    ModelText,
    NodeView,
    RunContext,
    Runtime,
    TextBlock,
    ToolUse,
    Turn,
    attach,
    registries,
    tool,
)
from treefold.core.errors import CallTimeoutError
from treefold.testing import ScriptedFailure, ScriptedModel, ScriptedRequest

FIRST_LIFE = "FIRST_LIFE" in os.environ


def reply(request: ScriptedRequest) -> Any:
    """Answer by what was said, so that every process answers alike."""
    first = getattr(request.transcript[0], "text", "")
    turns = sum(isinstance(part, ModelText | ToolUse) for part in request.transcript)
    if first.startswith("Fail") and turns == 0:
        return ToolUse("1", "fails", {})
    if first.startswith("Approve") and turns == 0:
        return ToolUse("1", "step", {"n": 7})
    if first.startswith("Bad") and turns == 0:
        return ToolUse("1", "step", {"m": 1})
    if first.startswith("Provider"):
        return ScriptedFailure(503, "the server is away")
    return f"answer {turns} to {first.splitlines()[0]}"


async def forever(ctx: RunContext) -> None:
    await asyncio.sleep(600)


async def pay_for_it(ctx: RunContext) -> str:
    await asyncio.sleep(600)
    return "paid"


async def step_once(ctx: RunContext, n: int) -> str:
    return f"step {n}"


def fail(ctx: RunContext) -> None:
    raise ValueError("it does not work")


slow = CodeFunction(name="slow", callable=forever, repeatable=True)
step = CodeFunction(name="step", callable=step_once, repeatable=True)
fails = CodeFunction(name="fails", callable=fail, repeatable=True)
pay = CodeFunction(name="pay", callable=pay_for_it)


async def run_too_long(ctx: RunContext) -> str:
    try:
        await ctx.invoke(slow, timeout=0.05)
    except CallTimeoutError:
        return "too slow"
    return "in time"


async def leave(ctx: RunContext) -> str:
    try:
        async with asyncio.timeout(0.05):
            await ctx.invoke(slow)
    except TimeoutError:
        return "left"
    return "stayed"


async def change_course(ctx: RunContext) -> str:
    """Make two calls in its first life, and one in any other."""
    await ctx.invoke(step, {"n": 1})
    if FIRST_LIFE:
        await ctx.invoke(step, {"n": 2})
    return await ctx.ask("Which way?")


async def pay_once(ctx: RunContext) -> Any:
    return await ctx.invoke(pay)


async def ask_twice(ctx: RunContext) -> list[str]:
    return [await ctx.ask("First?"), await ctx.ask("Second?", ["yes", "no"])]


async def chat(ctx: RunContext) -> list[str]:
    said: list[str] = []
    async with Client(AgentOptions("You chat.", ScriptedModel(reply))) as client:
        for prompt in "Hello", "Again":
            await client.query(prompt)
            blocks = [block async for block in client.receive_messages()]
            said += [block.text for block in blocks if isinstance(block, TextBlock)]
            said.append(await ctx.ask(f"After {prompt}?"))
    return said


with registries():

    @tool
    async def double(n: int) -> int:
        """Double it."""
        return 2 * n

    @tool
    async def dawdle() -> None:
        """Take too long."""
        await asyncio.sleep(600)


async def work_off(ctx: RunContext) -> list[str]:
    with registries():
        queue = Agent("queue", "Works off turns.", [double, dawdle])
        await queue.put(Turn(double, kwargs={"n": 21}))
        await queue.put(Turn(dawdle, timeout=0.05))
        done: list[str] = []
        try:
            async for turn, value in queue.run():
                done.append(f"{turn.tool.name} {value}")
        except TimeoutError as error:
            done.append(type(error).__name__)
        return done


def prompted(name: str, prompt: str, *uses: Any) -> AgentFunction:
    return AgentFunction(name=name, desc=name, user_prompt_template=prompt, uses=list(uses))


too_long = CodeFunction(name="too_long", callable=run_too_long, uses=[slow], repeatable=True)
leaving = CodeFunction(name="leaving", callable=leave, uses=[slow], repeatable=True)
course = CodeFunction(name="course", callable=change_course, uses=[step], repeatable=True)
paying = CodeFunction(name="paying", callable=pay_once, uses=[pay], repeatable=True)
asking = CodeFunction(name="asking", callable=ask_twice, repeatable=True)
chatting = CodeFunction(name="chatting", callable=chat, repeatable=True)
queueing = CodeFunction(name="queueing", callable=work_off, repeatable=True)
failing = prompted("failing", "Fail.", fails)
approved = prompted("approved", "Approve this.", step)
garbled = prompted("garbled", "Bad arguments.", step)
provided = prompted("provided", "Provider?")
greeting = prompted("greeting", "Greet.")
voting = Ensemble(prompted("voter", "Vote."), {"default": 2}, name="voting")

FUNCTIONS = [
    too_long, leaving, course, paying, asking, chatting, queueing, failing, approved, garbled,
    provided, greeting, voting, slow,
]  # fmt: skip


async def ask_about_seven(event: Any) -> HookDecision | None:
    return HookDecision(ask="Step seven?") if event.tool_input.get("n") == 7 else None


def open_runtime(path: Path) -> Runtime:
    """Return a runtime that goes on with the journal."""
    return Runtime(
        FUNCTIONS,
        models=ScriptedModel(reply),
        store=path,
        hooks={HOOK_PRE_TOOL_USE: [ask_about_seven]},
        on_tool_error="pause",
        on_provider_failure="pause",
    )


def wait_for(condition: Any) -> Any:
    """Wait until *condition* gives something, and return that."""
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
    return found


def question(runtime: Runtime, text: str) -> Any:
    """Wait for the question that has *text* in it."""
    return wait_for(lambda: next((q for q in runtime.questions() if text in q.text), None))


def die(path: Path) -> None:
    """Be killed as soon as all that has happened is written."""
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def live_first(path: Path) -> None:
    """Start one call of each function, and be killed while most of them wait."""
    runtime = open_runtime(path)
    for function in too_long, leaving, queueing, garbled, voting:
        assert runtime.invoke(function, key=function.name).result(60)
    greeted = runtime.invoke(greeting, key="greeting")
    greeted.result(60)
    for key in "course", "paying", "asking", "chatting", "failing", "approved", "provided":
        [function] = [one for one in FUNCTIONS if one.name == key]
        runtime.invoke(function, key=key)
    reported = runtime.invoke(failing, key="reported")
    wait_for(lambda: len([q for q in runtime.questions() if "it does not work" in q.text]) == 2)
    for asked in runtime.questions():
        if asked.node_id == reported.id:
            runtime.answer(asked.id, "report")
    reported.result(60)
    runtime.answer(question(runtime, "First?").id, "one")
    runtime.answer(question(runtime, "After Hello?").id, "fine")
    for text in "Which way?", "Second?", "After Again?", "Step seven?", "is away":
        question(runtime, text)
    runtime.invoke(slow, key="cancelled").cancel("enough")
    held = runtime.invoke(slow, key="held")
    wait_for(lambda: held.started_at)
    runtime.pause(held.id, "hold on")
    runtime.fork(greeted, edit=Edit(prompt="Greet in Low German.")).result(60)
    left = wait_for(lambda: runtime.invoke(leaving, key="leaving"))
    runtime.fork(runtime.get_subtree(left.id)[1], edit=Edit(result="given")).result(60)
    die(path)


def live_again(path: Path) -> None:
    """Resume everything, answer a little, and be killed again."""
    runtime = open_runtime(path)
    runtime.recover()
    course_node = runtime.invoke(course, key="course")
    runtime.answer(question(runtime, "Which way?").id, "left")
    course_node.result(60)
    question(runtime, "nobody knows whether it was done")
    die(path)


def summary(path: Path) -> list[dict[str, Any]]:
    """Return what an observer sees of every call, as plain data."""
    found: list[dict[str, Any]] = []

    def add(view: NodeView) -> None:
        found.append({
            "path": view.path,
            "function": view.fn,
            "state": view.state.value,
            "inputs": repr(dict(view.inputs)),
            "outputs": repr(view.outputs),
            "exception": None if view.exception is None else str(view.exception),
            "notices": list(view.notices),
            "questions": [[q.id, q.kind.value, q.text, list(q.choices)] for q in view.questions],
            "said": len(view.transcript),
        })  # fmt: skip
        for child in view.children:
            add(child)

    with attach(path) as observer:
        for tree in observer.trees():
            add(observer.get_view(tree.id))
    return found


def main(path: Path, life: str = "") -> None:
    """Live both lives in processes of their own, and print what is to be seen then."""
    if life:
        {"first": live_first, "again": live_again}[life](path)
        return
    for name, more in ("first", {"FIRST_LIFE": "1"}), ("again", {}):
        lived = subprocess.run([sys.executable, __file__, str(path), name], env=os.environ | more)
        assert lived.returncode == -signal.SIGKILL, lived
    json.dump(summary(path), sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
