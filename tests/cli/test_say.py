"""``treefold say``: to an agent that another process runs."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from journal_driver import act
from support import wait
from treefold import CodeFunction, RunContext, Runtime, ToolUse, agent
from treefold.testing import ScriptedModel


def test_an_agent_is_told_something_and_the_command_says_when_it_was_delivered(tmp_path: Path):
    path = tmp_path / "run.db"
    waits, goes_on = threading.Event(), threading.Event()

    def look(ctx: RunContext) -> str:
        waits.set()
        assert goes_on.wait(60)
        return "a cup"

    uses: Any = [CodeFunction(callable=look)]

    @agent(uses=uses)
    def search() -> str:
        """Search."""
        return "Look."

    model = ScriptedModel(ToolUse("1", "look"), "found")
    with Runtime([search], models=model, store=path) as runtime, ThreadPoolExecutor(1) as pool:
        node = runtime.invoke(search)
        assert waits.wait(60)
        assert act(path, "say", "1.1", "Hurry!") == (
            2,
            "",
            "treefold say: look (call 1.1) is not the call of an agent, and reads no messages\n",
        )
        saying = pool.submit(act, path, "say", "last", "Not on the roof.", "--wait", "60")
        wait(lambda: runtime.get_view(node.id).messages or None)
        goes_on.set()
        assert saying.result(60) == (0, "delivered to search (run 1), with request 2\n", "")
        assert node.result(60) == "found"
        runtime.flush()
        over = "search (run 1) has ended (success), and cannot be told anything any more"
        assert act(path, "say", "1", "Wait!") == (2, "", f"treefold say: {over}\n")
        assert act(path, "say", "1", " ")[0] == 2


def test_the_command_fails_when_the_agent_ends_without_having_read_it(tmp_path: Path):
    path, waits = tmp_path / "run.db", threading.Event()

    async def look(ctx: RunContext) -> None:
        waits.set()
        await asyncio.sleep(60)

    uses: Any = [CodeFunction(callable=look)]

    @agent(uses=uses)
    def search() -> str:
        """Search."""
        return "Look."

    model = ScriptedModel(ToolUse("1", "look"))
    with Runtime([search], models=model, store=path) as runtime, ThreadPoolExecutor(1) as pool:
        node = runtime.invoke(search)
        assert waits.wait(60)
        saying = pool.submit(act, path, "say", "1", "Not on the roof.", "--wait", "60")
        wait(lambda: runtime.get_view(node.id).messages or None)
        node.cancel("enough")
        late = "treefold say: search (run 1) has ended without having read it (canceled)\n"
        assert saying.result(60) == (2, "", late)
