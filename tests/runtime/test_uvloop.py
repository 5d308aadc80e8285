"""The essentials on uvloop, the event loop of ``uvicorn[standard]``."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mcp_servers import bare
from support import processes_in
from treefold import CancellationException, NodeState, RunContext, Runtime, ToolUse, agent, tool
from treefold.core.errors import CallTimeoutError
from treefold.mcp import McpConnectionError, McpServer
from treefold.testing import ScriptedModel
from treefold.toolbox import Bash, bash


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


async def test_an_agent_calls_a_tool_and_the_journal_has_all_of_it(tmp_path: Path):
    @tool
    async def double(n: int) -> int:
        return 2 * n

    @agent(uses=[double])
    def count(n: int) -> str:
        """Count."""
        return f"Double {n}."

    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    model = ScriptedModel(ToolUse("call_1", "double", {"n": 21}), "It is 42.")
    async with (
        asyncio.timeout(60),
        Runtime([count], models=model, store=tmp_path / "a.db") as first,
    ):
        assert await first.invoke(count, {"n": 21}, key="k") == "It is 42."
    async with asyncio.timeout(60), Runtime([count], store=tmp_path / "a.db") as second:
        node = second.invoke(count, {"n": 21}, key="k")
        assert await node == "It is 42."
        names = [type(event).__name__ async for event in second.events(node)]
    assert names.count("CallEnded") == 2


async def test_calls_are_cancelled_and_end_at_their_timeout():
    @tool
    async def forever(ctx: RunContext) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(60), Runtime() as runtime:
        node = runtime.invoke(forever)
        late = runtime.invoke(forever, timeout=0.05)
        node.cancel("enough")
        with pytest.raises(CancellationException):
            await node
        with pytest.raises(CallTimeoutError):
            await late
        assert (node.state, late.state) == (NodeState.Canceled, NodeState.Error)


async def test_a_shell_runs_commands_and_is_stopped_with_all_that_they_started(tmp_path: Path):
    mine = Bash(cwd=tmp_path)

    @tool(uses=[mine])
    async def caller(ctx: RunContext) -> list[str]:
        told = [await ctx.invoke(mine, {"command": "x=kept; ls /proc/self/fd | wc -l"})]
        with pytest.raises(CallTimeoutError, match="the shell is still there"):
            await ctx.invoke(mine, {"command": "setsid sleep 300 & sleep 301", "timeout": 0.3})
        return [*told, await ctx.invoke(mine, {"command": "echo $x; sleep 302 &"})]

    async with asyncio.timeout(60), Runtime() as runtime:
        # No descriptor is inherited but the first three; the fourth is the folder that ls reads.
        assert await runtime.invoke(caller) == ["4", "kept"]
    assert processes_in(tmp_path) == []


async def test_an_mcp_server_is_a_program_that_may_go_away(tmp_path: Path):
    async with asyncio.timeout(60), McpServer(bare(), cwd=tmp_path, max_chars=None) as server:
        text = "x" * 300_000
        assert await server.call("echo", {"text": text}) == text
        with pytest.raises(McpConnectionError, match="it closed its stdout"):
            await server.call("close")
    assert processes_in(tmp_path) == []


def test_a_loop_of_the_runtimes_own_may_be_a_uvloop(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, uvloop\n"
        "from treefold import RunContext, Runtime, tool\n"
        "from treefold.toolbox import bash\n"
        "uvloop.install()\n"
        "@tool(uses=[bash])\n"
        "async def ask(ctx: RunContext) -> str:\n"
        "    loop = type(asyncio.get_running_loop()).__module__\n"
        "    return loop + ' ' + await ctx.invoke(bash, {'command': 'echo hello'})\n"
        "with Runtime(store='run.db') as runtime:\n"
        "    print(ask.run_sync())\n"
        "    print(runtime.invoke(ask).result(60))\n"
    )
    told = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (told.stdout, told.stderr) == ("uvloop hello\n" * 2, "")


async def test_threads_use_a_runtime_on_it():
    async with asyncio.timeout(60), Runtime() as runtime:

        def elsewhere() -> str:
            return runtime.invoke(bash, {"command": "echo hello"}).result(60)

        async with asyncio.TaskGroup() as group:
            told = [group.create_task(asyncio.to_thread(elsewhere)) for _ in range(5)]
        assert [task.result() for task in told] == ["hello"] * 5
