"""When `run()` ends, when it refuses to start, and when it waits."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest

from support import settle, values
from treefold import (
    Agent,
    CompletionCheckReturnError,
    SafeExecutionError,
    StopReason,
    Tool,
    ToolType,
    Turn,
    tool,
)


def say_tool() -> Tool[Any, Any]:
    @tool
    async def say(word: str) -> str:
        return word

    return say


def check_tool(answer: Any) -> Tool[Any, Any]:
    @tool(type=ToolType.COMPLETION_CHECK)
    async def done() -> bool:
        return cast("bool", answer)

    return done


async def test_an_empty_queue_ends_the_run_at_once() -> None:
    assert await values(Agent("clerk", "", [])) == []


async def test_a_completion_check_that_returns_true_ends_the_run() -> None:
    say, done = say_tool(), check_tool(answer=True)
    agent = Agent("clerk", "", [say, done])
    check, rest = Turn(done), Turn(say, args=["b"])
    for turn in (Turn(say, args=["a"]), check, rest):
        await agent.put(turn)

    assert await values(agent) == ["a", True]
    assert list(agent.turns) == [rest]
    assert await values(agent) == ["b"]


async def test_a_completion_check_that_returns_false_lets_the_run_go_on() -> None:
    say, done = say_tool(), check_tool(answer=False)
    agent = Agent("clerk", "", [say, done])
    for turn in (Turn(done), Turn(say, args=["b"])):
        await agent.put(turn)

    assert await values(agent) == [False, "b"]


@pytest.mark.parametrize("answer", [1, "yes", None])
def test_a_completion_check_that_returns_no_bool_is_an_error(answer: Any) -> None:

    async def main() -> None:
        done = check_tool(answer)
        agent = Agent("clerk", "", [done])
        await agent.put(Turn(done))
        with pytest.raises(CompletionCheckReturnError, match="done"):
            await values(agent)

    asyncio.run(main())


async def test_true_from_another_tool_does_not_end_the_run() -> None:

    @tool
    async def yes() -> bool:
        return True

    agent = Agent("clerk", "", [yes])
    for _ in range(2):
        await agent.put(Turn(yes))

    assert await values(agent) == [True, True]


async def test_a_run_of_a_running_agent_is_refused() -> None:
    say = say_tool()
    agent = Agent("clerk", "", [say])
    await agent.put(Turn(say, args=["a"]))
    await agent.put(Turn(say, args=["b"]))

    seen: list[str] = []
    async with asyncio.timeout(60):
        async for _, value in agent.run():
            seen.append(value)
            with pytest.raises(SafeExecutionError):
                await values(agent)

    assert seen == ["a", "b"]


async def test_an_agent_can_be_run_again_after_its_run() -> None:
    say = say_tool()
    agent = Agent("clerk", "", [say])
    seen: list[Any] = []
    for word in "ab":
        await agent.put(Turn(say, args=[word]))
        seen += await values(agent)

    assert seen == ["a", "b"]


async def test_an_agent_can_be_run_again_after_a_failed_run() -> None:

    @tool
    async def fail() -> None:
        raise ConnectionError

    agent = Agent("clerk", "", [fail])
    await agent.put(Turn(fail))

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await values(agent)


async def test_a_paused_agent_starts_no_turn_until_it_is_resumed() -> None:
    told: list[tuple[str, Agent]] = []
    started: list[str] = []

    @tool
    async def say(word: str) -> str:
        started.append(word)
        return word

    agent = Agent("clerk", "", [say])

    @agent.on_pause
    async def paused(agent: Agent) -> None:
        told.append(("on_pause", agent))

    @agent.on_resume
    async def resumed(agent: Agent) -> None:
        told.append(("on_resume", agent))

    await agent.put(Turn(say, args=["a"]))
    await agent.put(Turn(say, args=["b"]))
    seen: list[str] = []

    async def consume() -> None:
        async for _, value in agent.run():
            seen.append(value)
            if value == "a":
                agent.pause()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(consume())
        await settle()
        halfway = (agent.is_paused, list(started), list(seen), list(told))
        agent.resume()

    assert halfway == (True, ["a"], ["a"], [("on_pause", agent)])
    assert (agent.is_paused, seen) == (False, ["a", "b"])
    assert told == [("on_pause", agent), ("on_resume", agent)]


async def test_an_agent_paused_before_its_run_waits() -> None:
    say = say_tool()
    agent = Agent("clerk", "", [say])
    await agent.put(Turn(say, args=["a"]))
    assert agent.is_paused is False
    agent.pause()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(values(agent))
        await settle()
        waited = not running.done() and agent.is_paused
        agent.resume()

    assert (waited, running.result()) == (True, ["a"])


async def test_the_turn_that_runs_when_an_agent_is_paused_is_finished() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        entered.set()
        await leave.wait()
        return "worked"

    agent = Agent("clerk", "", [work])
    await agent.put(Turn(work))

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        stream = agent.run()
        first = group.create_task(cast("Any", anext(stream)))
        await entered.wait()
        agent.pause()
        leave.set()
        _, value = await first
        agent.resume()
        rest = [pair async for pair in stream]

    assert (value, rest) == ("worked", [])


async def test_a_turn_whose_value_was_handed_out_is_done_and_not_run_again() -> None:
    calls: list[str] = []

    @tool
    async def work() -> str:
        calls.append("work")
        return "worked"

    agent = Agent("clerk", "", [work])
    first, second = Turn(work), Turn(work)
    await agent.put(first)
    await agent.put(second)

    async with asyncio.timeout(60):
        async with aclosing(agent.run()) as pairs:
            assert await anext(pairs) == (first, "worked")
        await settle()

    assert first.stop_reason is StopReason.COMPLETED
    assert (calls, list(agent.turns)) == (["work"], [second])


async def test_a_paused_run_can_be_abandoned() -> None:
    @tool
    async def act() -> None: ...

    agent, turn = Agent("clerk", "", [act]), Turn(act)
    await agent.put(turn)
    agent.pause()
    before = asyncio.all_tasks()

    async def consume() -> None:
        async for _ in agent.run():
            pass

    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(consume())
            await settle()
            task.cancel()
        await settle()

    assert asyncio.all_tasks() == before
    assert (turn.stop_reason, agent.turns) == (None, [turn])
