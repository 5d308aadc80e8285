"""Where what a tool gives goes: to the queue, to the context, or to the caller."""

import asyncio
from typing import Any

import pytest

from support import pairs
from treefold import Agent, ContextItem, ContextPool, ContextQueue, Turn, tool


async def test_a_returned_turn_is_put_and_run_and_not_yielded() -> None:
    put: list[Turn] = []

    @tool
    async def respond(text: str) -> str:
        return f"re: {text}"

    following = Turn(respond, kwargs={"text": "hi"})

    @tool
    async def decide() -> Turn:
        return following

    agent = Agent("clerk", "", [decide, respond])

    @agent.after_put
    async def log(agent: Agent, turn: Turn) -> None:
        put.append(turn)

    first = Turn(decide)
    await agent.put(first)

    assert await pairs(agent) == [(following, "re: hi")]
    assert put == [first, following]


async def test_a_returned_turn_goes_behind_those_that_wait() -> None:

    @tool
    async def say(word: str) -> str:
        return word

    @tool
    async def decide() -> Turn:
        return Turn(say, args=["decided"])

    agent = Agent("clerk", "", [decide, say])
    await agent.put(Turn(decide))
    await agent.put(Turn(say, args=["waiting"]))

    assert [value for _, value in await pairs(agent)] == ["waiting", "decided"]


async def test_a_returned_turn_of_a_foreign_tool_is_refused() -> None:

    @tool
    async def foreign() -> None: ...

    @tool
    async def decide() -> Turn:
        return Turn(foreign)

    agent = Agent("clerk", "", [decide])
    await agent.put(Turn(decide))

    with pytest.raises(ValueError, match="foreign"):
        await pairs(agent)


async def test_a_returned_item_without_id_is_appended_to_the_queue() -> None:
    item = ContextItem("note")

    @tool
    async def record() -> ContextItem:
        return item

    agent = Agent("clerk", "", [record], ContextPool(), ContextQueue(5))
    await agent.put(Turn(record))

    assert await pairs(agent) == []
    assert (list(agent.context_queue.items), list(agent.context_pool.items)) == ([item], [])


async def test_a_returned_item_with_id_is_stored_in_the_pool() -> None:
    item = ContextItem("note", id="n1")

    @tool
    async def record() -> ContextItem:
        return item

    agent = Agent("clerk", "", [record], ContextPool(), ContextQueue(5))
    await agent.put(Turn(record))

    assert await pairs(agent) == []
    assert (list(agent.context_queue.items), list(agent.context_pool.items)) == ([], [item])
    assert agent.context_pool.get("n1") is item


async def test_an_agent_that_was_given_no_context_has_some() -> None:

    @tool
    async def record() -> Any:
        yield ContextItem("a")
        yield ContextItem("b", id="b")

    agent = Agent("clerk", "", [record])
    await agent.put(Turn(record))

    assert await pairs(agent) == []
    assert [item.content for item in agent.context_queue.items] == ["a"]
    assert [item.content for item in agent.context_pool.items] == ["b"]


async def test_anything_else_is_yielded_with_its_turn() -> None:
    given: list[Any] = [None, False, 0, "", "text", {"a": 1}, [1], []]

    @tool
    async def give(index: int) -> Any:
        return given[index]

    agent = Agent("clerk", "", [give])
    turns = [Turn(give, args=[index]) for index in range(len(given))]
    for turn in turns:
        await agent.put(turn)

    assert await pairs(agent) == list(zip(turns, given, strict=True))


async def test_each_value_of_a_stream_is_routed_by_itself() -> None:

    @tool
    async def say(word: str) -> str:
        return word

    @tool
    async def mix() -> Any:
        yield "plain"
        yield ContextItem("note")
        yield Turn(say, args=["later"])
        yield ContextItem("fact", id="f")
        yield "more"

    agent = Agent("clerk", "", [mix, say])
    await agent.put(Turn(mix))

    assert [value for _, value in await pairs(agent)] == ["plain", "more", "later"]
    assert [item.content for item in agent.context_queue.items] == ["note"]
    assert [item.content for item in agent.context_pool.items] == ["fact"]


async def test_values_of_a_stream_are_yielded_as_they_are_produced() -> None:
    go_on = asyncio.Event()

    @tool
    async def two() -> Any:
        yield 1
        await go_on.wait()
        yield 2

    agent = Agent("clerk", "", [two])
    await agent.put(Turn(two))

    seen: list[int] = []
    async with asyncio.timeout(60):
        async for _, value in agent.run():
            seen.append(value)
            go_on.set()

    assert seen == [1, 2]


async def test_values_of_a_stream_are_routed_as_they_are_produced() -> None:

    @tool
    async def note() -> Any:
        yield ContextItem("note")
        yield [item.content for item in agent.context_queue.items]

    agent = Agent("clerk", "", [note])
    await agent.put(Turn(note))

    assert [value for _, value in await pairs(agent)] == [["note"]]
