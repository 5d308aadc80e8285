"""Putting turns to agents, and what happens to the ones that fail."""

import asyncio
from typing import Any, cast

import pytest

from support import values
from treefold import (
    Agent,
    AgentHook,
    AgentRegistry,
    ContextItem,
    ContextPool,
    ContextQueue,
    StopReason,
    Tool,
    Turn,
    TurnTimeoutError,
    UnregisteredAgentError,
    hook,
    tool,
)

Told = list[tuple[Any, ...]]


def echo_tool() -> Tool[Any, Any]:
    @tool
    async def echo(word: str) -> str:
        return word

    return echo


def saying(word: str) -> Turn:
    return Turn("echo", kwargs={"word": word})


def watch_puts(agent: Agent) -> Told:
    told: Told = []

    @agent.before_put
    async def before(agent: Agent, turn: Turn) -> None:
        told.append(("before_put", agent, turn, list(agent.turns)))

    @agent.after_put
    async def after(agent: Agent, turn: Turn) -> None:
        told.append(("after_put", agent, turn, list(agent.turns)))

    return told


async def test_a_turn_without_a_tool_is_refused() -> None:
    agent = Agent("clerk", "", [echo_tool()])
    told = watch_puts(agent)
    turn = saying("x")
    turn.tool = cast("Any", None)

    with pytest.raises(ValueError, match="tool"):
        await agent.put(turn)

    assert (list(agent.turns), told) == ([], [])


async def test_a_turn_of_a_tool_that_the_agent_does_not_have_is_refused() -> None:
    echo_tool()
    agent = Agent("clerk", "", [])
    told = watch_puts(agent)

    with pytest.raises(ValueError, match="echo"):
        await agent.put(saying("x"))

    assert (list(agent.turns), told) == ([], [])


async def test_a_put_turn_is_queued_between_the_two_hooks() -> None:
    agent = Agent("clerk", "", [echo_tool()])
    told = watch_puts(agent)
    turn = saying("x")

    await agent.put(turn)

    assert list(agent.turns) == [turn]
    assert told == [("before_put", agent, turn, []), ("after_put", agent, turn, [turn])]


async def test_a_put_hook_that_raises_keeps_the_turn_out() -> None:
    agent = Agent("clerk", "", [echo_tool()])

    @agent.before_put
    async def refuse(agent: Agent, turn: Turn) -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        await agent.put(saying("x"))

    assert list(agent.turns) == []


async def test_turns_run_in_the_order_in_which_they_were_put() -> None:
    agent = Agent("clerk", "", [echo_tool()])
    first, second = saying("a"), saying("b")
    await agent.put(first)
    await agent.put(second)

    async with asyncio.timeout(60):
        pairs = [pair async for pair in agent.run()]

    assert pairs == [(first, "a"), (second, "b")]
    assert list(agent.turns) == []


async def test_a_turn_put_while_the_agent_runs_is_run_too() -> None:
    agent = Agent("clerk", "", [echo_tool()])
    await agent.put(saying("a"))

    seen: list[str] = []
    async with asyncio.timeout(60):
        async for _, value in agent.run():
            seen.append(value)
            if value == "a":
                await agent.put(saying("b"))

    assert seen == ["a", "b"]


async def test_send_puts_a_turn_to_the_agent_of_that_name() -> None:
    made = echo_tool()
    sender, receiver = Agent("sender", "", []), Agent("receiver", "", [made])
    told = watch_puts(receiver)
    turn = saying("x")

    await sender.send("receiver", turn)

    assert (list(sender.turns), list(receiver.turns)) == ([], [turn])
    assert [name for name, *_ in told] == ["before_put", "after_put"]
    assert await values(receiver) == ["x"]


async def test_sending_to_an_unknown_agent_is_refused_by_name() -> None:
    agent = Agent("sender", "", [echo_tool()])

    with pytest.raises(UnregisteredAgentError, match="nobody"):
        await agent.send("nobody", saying("x"))


async def test_a_turn_that_raised_stays_first_in_the_queue() -> None:
    healthy = False

    @tool
    async def fetch() -> str:
        if not healthy:
            raise ConnectionError
        return "fetched"

    agent = Agent("clerk", "", [fetch, echo_tool()])
    failing, next_one = Turn(fetch), saying("next")
    await agent.put(failing)
    await agent.put(next_one)

    with pytest.raises(ConnectionError):
        await values(agent)
    queued = list(agent.turns)
    healthy = True

    assert queued == [failing, next_one]
    assert failing.stop_reason is StopReason.ERROR
    assert await values(agent) == ["fetched", "next"]
    assert list(agent.turns) == []


async def test_a_turn_that_timed_out_stays_first_in_the_queue() -> None:

    @tool
    async def wait() -> None:
        await asyncio.Event().wait()

    agent = Agent("clerk", "", [wait, echo_tool()])
    slow, next_one = Turn(wait, timeout=0.01), saying("next")
    await agent.put(slow)
    await agent.put(next_one)

    with pytest.raises(TurnTimeoutError):
        await values(agent)

    assert list(agent.turns) == [slow, next_one]
    assert slow.stop_reason is StopReason.TIMEOUT


async def test_a_stream_that_raised_half_way_stays_first_in_the_queue() -> None:

    @tool
    async def fail() -> Any:
        yield 1
        raise ConnectionError

    agent = Agent("clerk", "", [fail])
    turn = Turn(fail)
    await agent.put(turn)

    stream = agent.run()
    first = await anext(stream)
    with pytest.raises(ConnectionError):
        await anext(stream)

    assert (first, list(agent.turns)) == ((turn, 1), [turn])


async def test_a_global_agent_hook_fires_for_tagged_agents() -> None:
    seen: list[Agent] = []

    @hook(AgentHook.AFTER_PUT, tags={"io"})
    async def log(agent: Agent, turn: Turn) -> None:
        seen.append(agent)

    made = echo_tool()
    tagged, plain = Agent("tagged", "", [made], tags=["io"]), Agent("plain", "", [made])
    await tagged.put(saying("x"))
    await plain.put(saying("x"))

    assert seen == [tagged]


async def test_a_branch_has_the_classes_of_what_it_was_branched_from() -> None:
    class Notes(ContextQueue):
        pass

    class Facts(ContextPool):
        pass

    class Errand(Turn[str]):
        pass

    class Messenger(Agent):
        pass

    agent = Messenger("trunk", "Says things", [echo_tool()], Facts(), Notes(5))
    await agent.put(Errand("echo", kwargs={"word": "a"}))

    branch = agent.branch("twig")

    parts = (branch, branch.context_pool, branch.context_queue, *branch.turns)
    assert [type(part) for part in parts] == [Messenger, Facts, Notes, Errand]
    assert await values(branch) == ["a"]


async def test_a_branch_goes_its_own_way() -> None:
    made = echo_tool()
    agent = Agent("trunk", "Says things", [made], ContextPool(), ContextQueue(5))
    await agent.put(saying("a"))
    await agent.context_queue.append(ContextItem("old"))
    await agent.context_pool.add(ContextItem("old", id="old"))

    branch = agent.branch("twig")
    await branch.put(saying("b"))
    await branch.context_queue.append(ContextItem("new"))
    await branch.context_pool.add(ContextItem("new", id="new"))

    assert AgentRegistry.get("twig") is branch
    assert AgentRegistry.get("trunk") is agent
    assert [item.content for item in agent.context_queue.items] == ["old"]
    assert [item.content for item in branch.context_queue.items] == ["old", "new"]
    assert [item.content for item in agent.context_pool.items] == ["old"]
    assert [item.content for item in branch.context_pool.items] == ["old", "new"]
    assert (await values(branch), await values(agent)) == (["a", "b"], ["a"])
