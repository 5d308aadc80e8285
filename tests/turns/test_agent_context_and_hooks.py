"""The context that tools get from their agent, and the arguments of the hooks of an agent."""

from typing import Any

from support import pairs
from treefold import Agent, ContextItem, ContextPool, ContextQueue, Turn, tool


async def test_a_value_is_routed_before_the_next_turn_starts() -> None:

    @tool
    async def record() -> ContextItem:
        return ContextItem("note")

    @tool
    async def store() -> ContextItem:
        return ContextItem("fact", id="f")

    @tool
    async def read(queue: ContextQueue, pool: ContextPool, prefix: str = "") -> list[str]:
        return [prefix + item.content for item in [*queue.items, *pool.items]]

    agent = Agent("clerk", "", [record, store, read])
    for turn in (Turn(record), Turn(store), Turn(read, kwargs={"prefix": "> "})):
        await agent.put(turn)

    assert [value for _, value in await pairs(agent)] == [["> note", "> fact"]]


async def test_a_tool_is_given_the_very_context_of_its_agent() -> None:

    @tool
    async def read(queue: ContextQueue, pool: ContextPool) -> tuple[ContextQueue, ContextPool]:
        return queue, pool

    agents = [
        Agent(name, "", [read], context_pool=ContextPool(), context_queue=ContextQueue(3))
        for name in ("one", "two")
    ]
    for agent in agents:
        await agent.put(Turn(read))
        [(_, (queue, pool))] = await pairs(agent)
        assert queue is agent.context_queue
        assert pool is agent.context_pool


async def test_the_hooks_of_an_agent_around_its_turns() -> None:
    told: list[tuple[Any, ...]] = []

    @tool
    async def count(to: int) -> Any:
        for number in range(to):
            yield number

    agent = Agent("clerk", "", [count])

    @agent.before_turn
    async def before(agent: Agent) -> None:
        told.append(("before_turn", agent))

    @agent.on_turn_value
    async def each(agent: Agent, turn: Turn, value: Any) -> None:
        told.append(("on_turn_value", agent, turn, value))

    @agent.after_turn
    async def after(agent: Agent, turn: Turn) -> None:
        told.append(("after_turn", agent, turn))

    first, second = Turn(count, args=[2]), Turn(count, args=[1])
    await agent.put(first)
    await agent.put(second)
    await pairs(agent)

    assert told == [
        ("before_turn", agent),
        ("on_turn_value", agent, first, 0),
        ("on_turn_value", agent, first, 1),
        ("after_turn", agent, first),
        ("before_turn", agent),
        ("on_turn_value", agent, second, 0),
        ("after_turn", agent, second),
    ]
