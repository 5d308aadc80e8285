"""A stop that stops everything, at once, and leaves the runtime as good as new."""

import asyncio
import time
from pathlib import Path

import pytest

from agent_scripts import ended, until
from journeys.roles import (
    actor,
    all_views,
    assert_same,
    call,
    children,
    everyone,
    playing,
    with_steps,
)
from treefold import (
    CancellationException,
    CodeFunction,
    Function,
    NodeState,
    RunContext,
    Runtime,
    registries,
    tool,
)
from treefold.toolbox import Bash
from wire import Stall
from wire.protocols import Protocol

with registries():

    @tool
    async def forever() -> None:
        """Wait."""
        await asyncio.Event().wait()


def program(agent: Function) -> CodeFunction:
    async def survey(ctx: RunContext) -> str:
        return await ctx.invoke(agent, {"task": "Survey."})

    return CodeFunction(callable=survey, uses=[agent])


def tasks() -> set[asyncio.Task[object]]:
    """Return what runs here, but for the server."""

    def is_the_servers(task: "asyncio.Task[object]") -> bool:
        return "ModelServer" in repr(task.get_coro()) or "Inbox" in repr(task.get_coro())

    return {task for task in asyncio.all_tasks() if not is_the_servers(task)}


def working_in(folder: Path) -> list[str]:
    """Return the commands of the processes that work in *folder*."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:
            continue
    return [command for command in found if command]


async def test_a_cancel_in_mid_stream_ends_the_tree_and_not_the_runtime(protocol: Protocol):
    writer = actor("writer")
    lead = actor("lead", writer, parallel_tools=True)
    survey = program(lead)
    half = with_steps(protocol.text("one ", "two ", "three"), Stall())
    asks = [
        protocol.calls(call("w1", "writer", task="One."), call("w2", "writer", task="Two.")),
        protocol.text("Fine."),
    ]
    async with (
        playing(protocol, lead=asks, writer=[half, half]) as (server, play),
        Runtime([survey], models=protocol.model(server)) as runtime,
    ):
        before = tasks()
        root = runtime.invoke(survey)

        def words() -> int:
            views = all_views(runtime.get_view(root.id))
            return sum(bool(view.partial) for view in views)

        await until(lambda: words() == 2)
        root.cancel("we are late")
        with pytest.raises(CancellationException, match="we are late"):
            await root
        async with asyncio.timeout(60):
            await server.disconnected.wait()
        await until(lambda: server.in_flight == 0)
        assert server.disconnects == 2
        await until(lambda: tasks() == before)

        view = runtime.get_view(root.id)
        assert_same(view, root)
        assert [one.fn for one in all_views(view)] == ["survey", "lead", "writer", "writer"]
        for one in all_views(view):
            assert (one.state, one.partial, one.status) == (NodeState.Canceled, "", "")
            assert one.exception is not None
            assert one.exception.type == "CancellationException"
            assert "we are late" in one.exception.message

        again = runtime.invoke(survey)
        assert await again == "Fine."
        await until(lambda: tasks() == before)
    assert len(server.requests) == 4
    assert play.told("lead")[-1].results == ()


async def test_a_cancel_of_one_branch_is_told_to_the_agent_above(protocol: Protocol):
    writer = actor("writer")
    lead = actor("lead", writer)
    half = with_steps(protocol.text("one ", "two ", "three"), Stall())
    asks = [
        protocol.calls(call("w1", "writer", task="One.")),
        protocol.text("Without it, then."),
    ]
    async with (
        playing(protocol, lead=asks, writer=[half]) as (server, play),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        root = runtime.invoke(lead, {"task": "Lead."})
        await until(lambda: any(v.partial for v in all_views(runtime.get_view(root.id))))
        [branch] = children(root)
        runtime.cancel(branch.id, "not needed")
        assert await root == "Without it, then."
    assert branch.state is NodeState.Canceled
    [result] = play.told("lead")[1].results
    assert result.is_error
    assert "not needed" in result.content
    assert server.disconnects == 1


async def test_a_cancel_ends_a_command_a_stream_and_three_children_in_under_a_second(
    protocol: Protocol, tmp_path: Path
):
    shell = Bash(cwd=tmp_path)
    writer = actor("writer")
    lead = actor("lead", shell, writer, forever, parallel_tools=True)
    asks = [
        protocol.calls(
            call("b", "bash", command="sleep 300 & sleep 300"),
            call("w", "writer", task="Write."),
            call("f", "forever"),
        )
    ]
    half = with_steps(protocol.text("one ", "two ", "three"), Stall())
    async with (
        playing(protocol, lead=asks, writer=[half]) as (server, _),
        Runtime([lead], models=protocol.model(server)) as runtime,
    ):
        root = runtime.invoke(lead, {"task": "Lead."})

        def under_way() -> bool:
            views = all_views(runtime.get_view(root.id))
            return any(view.partial for view in views)

        await until(lambda: working_in(tmp_path).count("sleep 300") == 2)
        await until(under_way)
        assert [node.state for node in everyone(root)] == [NodeState.Running] * 4

        begun = time.monotonic()
        root.cancel("enough")
        await ended(root)
        async with asyncio.timeout(60):
            await server.disconnected.wait()
        assert "sleep 300" not in working_in(tmp_path)
        # A second is promised; a busy machine takes longer, and nothing waits for the programs.
        assert time.monotonic() - begun < 30

        view = runtime.get_view(root.id)
        assert_same(view, root)
        assert [one.fn for one in all_views(view)] == ["lead", "bash", "writer", "forever"]
        for one in all_views(view):
            assert one.state is NodeState.Canceled
            assert one.exception is not None
            assert "enough" in one.exception.message
        runtime.delete(root.id)
        await until(lambda: not working_in(tmp_path))  # the shell itself


async def test_closing_a_runtime_in_the_background_leaves_nothing(
    protocol: Protocol, tmp_path: Path
):
    shell = Bash(cwd=tmp_path)
    writer = actor("writer")
    lead = actor("lead", shell, writer, parallel_tools=True)
    asks = [
        protocol.calls(
            call("b", "bash", command="sleep 300 & sleep 300"), call("w", "writer", task="Write.")
        )
    ]
    half = with_steps(protocol.text("one ", "two ", "three"), Stall())
    async with playing(protocol, lead=asks, writer=[half]) as (server, _):
        runtime = Runtime([lead], models=protocol.model(server))
        root = runtime.invoke(lead, {"task": "Lead."})
        await until(lambda: working_in(tmp_path).count("sleep 300") == 2)
        await until(lambda: any(v.partial for v in all_views(runtime.get_view(root.id))))
        await asyncio.to_thread(runtime.close)
        await until(lambda: server.in_flight == 0)
    assert working_in(tmp_path) == []
    assert {view.state for view in all_views(runtime.get_view(root.id))} == {NodeState.Canceled}
