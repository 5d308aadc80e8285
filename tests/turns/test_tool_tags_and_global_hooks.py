"""Process-wide hooks, and the tags that say for which objects they fire."""

import asyncio
from typing import Any

import pytest

from treefold import (
    Agent,
    AgentHook,
    ContextItem,
    ContextPool,
    ContextPoolHook,
    ContextQueue,
    ContextQueueHook,
    Hook,
    HookRegistry,
    ToolHook,
    Turn,
    TurnHook,
    UnregisteredHookError,
    hook,
    registries,
    tool,
)


async def call_three_tools() -> None:
    @tool(tags=["storage", "io"])
    async def write_db() -> str:
        return "write_db"

    @tool(tags=["io"])
    async def read_file() -> str:
        return "read_file"

    @tool()
    async def compute() -> str:
        return "compute"

    await write_db()
    await read_file()
    await compute()


def test_tags_are_given_as_a_list_or_a_frozenset_and_kept_as_a_frozenset() -> None:

    @tool(tags=["a", "b"])
    async def one() -> None: ...

    @tool(tags=frozenset({"a"}))
    async def two() -> None: ...

    @tool()
    async def three() -> None: ...

    assert [one.tags, two.tags, three.tags] == [{"a", "b"}, {"a"}, set()]
    assert {type(made.tags) for made in (one, two, three)} == {frozenset}


async def test_a_hook_with_tags_fires_for_tools_with_such_a_tag_only() -> None:
    seen: list[str] = []

    @hook(ToolHook.AFTER_INVOKE, tags={"io"})
    async def log_io_ops(result: str) -> None:
        seen.append(result)

    await call_three_tools()

    assert seen == ["write_db", "read_file"]


async def test_one_common_tag_is_enough() -> None:
    seen: list[str] = []

    @hook(ToolHook.AFTER_INVOKE, tags={"storage", "network"})
    async def log(result: str) -> None:
        seen.append(result)

    await call_three_tools()

    assert seen == ["write_db"]


async def test_a_hook_without_tags_fires_for_all_tools() -> None:
    seen: list[str] = []

    @hook(ToolHook.AFTER_INVOKE)
    async def log_all(result: str) -> None:
        seen.append(result)

    await call_three_tools()

    assert seen == ["write_db", "read_file", "compute"]


async def test_hooks_of_one_tool_are_unaffected_by_tags() -> None:
    seen: list[str] = []

    @hook(ToolHook.AFTER_INVOKE, tags={"other"})
    async def log(result: str) -> None:
        seen.append("global")

    @tool(tags=["io"])
    async def read() -> str:
        return "read"

    @read.after_invoke
    async def own(result: str) -> None:
        seen.append(result)

    await read()

    assert seen == ["read"]


async def test_one_hook_filters_tools_agents_turns_and_context_by_the_same_tag() -> None:
    count = 0

    points = [
        ToolHook.AFTER_INVOKE,
        TurnHook.AFTER_RUN,
        AgentHook.AFTER_PUT,
        ContextQueueHook.AFTER_APPEND,
        ContextPoolHook.AFTER_ADD,
    ]

    @hook(points, tags={"io"})
    async def tick(*args: Any) -> None:
        nonlocal count
        count += 1

    async def exercise(suffix: str, tags: list[str] | None) -> int:
        nonlocal count
        count = 0

        async def work() -> str:
            return "done"

        with registries():
            made = tool(tags=tags)(work)
            await made()
            after_tool = count
            await Turn(made, tags=tags).returning()
            agent = Agent(f"agent{suffix}", "", [made], tags=tags)
            await agent.put(Turn(made))
            await ContextQueue(2, tags=tags).append(ContextItem("x"))
            await ContextPool(tags=tags).add(ContextItem("x", id="x"))
        assert after_tool == (1 if tags else 0)
        return count

    assert await exercise("1", ["io"]) == 6  # the turn calls the tool once more
    assert await exercise("2", None) == 0


async def test_a_turn_can_be_tagged_apart_from_its_tool() -> None:
    seen: list[Turn] = []

    @hook(TurnHook.BEFORE_RUN, tags={"io"})
    async def log(turn: Turn) -> None:
        seen.append(turn)

    @tool
    async def work() -> None: ...

    tagged, plain = Turn(work, tags=["io"]), Turn(work)
    await tagged.returning()
    await plain.returning()

    assert seen == [tagged]


async def test_a_global_hook_gets_its_fixed_arguments() -> None:
    seen: list[tuple[Any, str]] = []

    @hook(ToolHook.AFTER_INVOKE, prefix="got")
    async def log(result: Any, prefix: str) -> None:
        seen.append((result, prefix))

    @tool
    async def one() -> int:
        return 1

    await one()

    assert seen == [(1, "got")]


async def test_a_locked_hook_runs_once_at_a_time() -> None:
    inside = most = 0
    leave = asyncio.Event()

    @hook(ToolHook.BEFORE_INVOKE, lock=True)
    async def guard(**kwargs: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await leave.wait()
        inside -= 1

    @tool
    async def work() -> None: ...

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(work())
        for _ in range(20):
            await asyncio.sleep(0)
        leave.set()

    assert most == 1


async def test_what_a_global_hook_raises_comes_out_of_the_call() -> None:

    @hook(ToolHook.BEFORE_INVOKE)
    async def refuse(**kwargs: Any) -> None:
        raise PermissionError

    @tool
    async def work() -> None: ...

    with pytest.raises(PermissionError):
        await work()


def test_a_global_hook_is_found_by_name() -> None:

    @hook(ToolHook.AFTER_INVOKE)
    async def log_all(result: Any) -> None: ...

    assert isinstance(log_all, Hook)
    assert HookRegistry.get("log_all") is log_all
    with pytest.raises(UnregisteredHookError):
        HookRegistry.get("log_nothing")


async def test_a_hook_of_a_closed_scope_fires_no_more() -> None:
    seen: list[str] = []

    @tool
    async def work() -> str:
        return "work"

    with registries():

        @hook(ToolHook.AFTER_INVOKE)
        async def log(result: str) -> None:
            seen.append(result)

        await work()
    await work()

    assert seen == ["work"]
