"""`to_dict()` and `Agent.from_dict()`, here and in another process."""

import json
import subprocess

import pytest

import warm_python
from support import travel, values
from treefold import Agent, AgentRegistry, StopReason, Turn, UnregisteredToolError, tool

RESTORE = """
import asyncio, json, sys
from treefold import Agent, AgentRegistry, tool

@tool
async def say(word: str) -> str:
    return word

async def main() -> None:
    agent = Agent.from_dict(json.load(sys.stdin))
    print(json.dumps({
        "before": agent.to_dict(),
        "registered": AgentRegistry.get("clerk") is agent,
        "values": [value async for _, value in agent.run()],
    }))

asyncio.run(main())
"""


async def clerk() -> Agent:
    @tool
    async def say(word: str) -> str:
        return word

    agent = Agent("clerk", "Says things", [say])
    for word in ("a", "b"):
        await agent.put(Turn(say, kwargs={"word": word}))
    return agent


async def test_an_agent_as_a_dict() -> None:
    agent = await clerk()
    data = travel(agent.to_dict())

    assert {name: data[name] for name in ("name", "description", "tool_names", "queue")} == {
        "name": "clerk",
        "description": "Says things",
        "tool_names": ["say"],
        "queue": [travel(turn.to_dict()) for turn in agent.turns],
    }


async def test_an_agent_is_restored_in_the_process_that_saved_it() -> None:
    agent = await clerk()
    data = travel(agent.to_dict())
    restored = Agent.from_dict(data)

    assert restored is not agent
    assert AgentRegistry.get("clerk") is restored
    assert travel(restored.to_dict()) == data
    assert [turn.uuid for turn in restored.turns] == [turn.uuid for turn in agent.turns]
    assert await values(restored) == ["a", "b"]


async def test_restoring_twice_works() -> None:
    data = travel((await clerk()).to_dict())
    Agent.from_dict(data)

    assert await values(Agent.from_dict(data)) == ["a", "b"]


async def test_a_restored_agent_has_its_tools_and_its_description() -> None:
    agent = await clerk()
    restored = Agent.from_dict(travel(agent.to_dict()))
    await restored.put(Turn("say", kwargs={"word": "c"}))

    assert (restored.name, restored.description) == ("clerk", "Says things")
    assert await values(restored) == ["a", "b", "c"]


async def test_the_saved_agent_and_the_restored_one_have_a_queue_each() -> None:
    agent = await clerk()
    restored = Agent.from_dict(travel(agent.to_dict()))

    assert await values(restored) == ["a", "b"]
    assert await values(agent) == ["a", "b"]


async def test_hooks_are_not_saved() -> None:
    seen: list[str] = []
    agent = await clerk()

    @agent.before_turn
    async def before(agent: Agent) -> None:
        seen.append("turn")

    @agent.before_put
    async def put(agent: Agent, turn: Turn) -> None:
        seen.append("put")

    data = travel(agent.to_dict())
    await values(Agent.from_dict(data))

    assert (seen, "hooks" in data) == ([], False)


async def test_a_failed_turn_is_saved_with_the_queue() -> None:
    healthy = False

    @tool
    async def fetch() -> str:
        if not healthy:
            raise ConnectionError
        return "fetched"

    agent = Agent("clerk", "", [fetch])
    await agent.put(Turn(fetch))
    with pytest.raises(ConnectionError):
        await values(agent)

    restored = Agent.from_dict(travel(agent.to_dict()))
    reasons = [turn.stop_reason for turn in restored.turns]
    healthy = True

    assert reasons == [StopReason.ERROR]
    assert await values(restored) == ["fetched"]


async def test_subtools_are_saved_by_their_scoped_names() -> None:

    @tool
    async def users() -> None: ...

    @users.subtool()
    async def create() -> str:
        return "created"

    agent = Agent("clerk", "", [create])
    await agent.put(Turn("users.create"))
    data = travel(agent.to_dict())

    assert data["tool_names"] == ["users.create"]
    assert await values(Agent.from_dict(data)) == ["created"]


async def test_an_agent_whose_tool_is_not_registered_cannot_be_restored() -> None:
    agent = await clerk()
    data = travel(agent.to_dict()) | {"tool_names": ["shout"], "queue": []}

    with pytest.raises(UnregisteredToolError, match="shout"):
        Agent.from_dict(data)
    assert AgentRegistry.get("clerk") is agent


async def test_an_agent_is_restored_and_run_in_another_process() -> None:
    data = travel((await clerk()).to_dict())

    done = subprocess.run(  # noqa: ASYNC221
        warm_python.command("-c", RESTORE),
        input=json.dumps(data),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stderr == ""
    assert json.loads(done.stdout) == {"before": data, "registered": True, "values": ["a", "b"]}
