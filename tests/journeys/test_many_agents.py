"""Five hundred agents at once, and no more requests under way than there may be."""

import asyncio
import re

from journeys.roles import REPORTED, actor, call, children
from treefold import Limits, NodeState, Runtime, TokenUsage, registries, tool
from wire import Reply, Request, Wait
from wire.protocols import PROTOCOLS

OPENAI = PROTOCOLS[0]
AGENTS, CYCLES, PLACES = 500, 5, 50
NUMBER = re.compile(rb"Agent (\d+)\.")

with registries():

    @tool
    async def step(n: int) -> int:
        """Go on."""
        await asyncio.sleep(0)
        return n + 1


async def test_five_hundred_agents_share_fifty_places_and_all_finish():
    worker = actor("worker", step)
    full = asyncio.Event()
    order: list[int] = []  # in which agents made their first requests
    steps = [OPENAI.calls(call("s", "step", n=n)) for n in range(CYCLES)]
    first = Reply(steps[0].status, steps[0].headers, (Wait(full), *steps[0].steps))
    last = OPENAI.text("Done.")

    def work(request: Request) -> Reply:
        done = request.body.count(b'"role":"tool"')
        if done == 0:
            found = NUMBER.search(request.body)
            assert found is not None
            order.append(int(found[1]))
            if server.in_flight == PLACES:
                full.set()  # all places are taken: from now on everything may end
            return first
        return steps[done] if done < CYCLES else last

    async with asyncio.timeout(600), OPENAI.server() as server:
        server.on_request = work
        limits = Limits(PLACES)
        async with Runtime([worker], models=OPENAI.model(server), limits=limits) as runtime:
            nodes = [runtime.invoke(worker, {"task": f"Agent {n}."}) for n in range(AGENTS)]
            answers = [await node for node in nodes]
    assert answers == ["Done."] * AGENTS
    assert server.most_in_flight == PLACES
    assert len(server.requests) == AGENTS * (CYCLES + 1)
    for node in nodes:
        made = children(node)
        assert [(child.state, child.outputs) for child in made] == [
            (NodeState.Success, n + 1) for n in range(CYCLES)
        ]
        assert node.total_usage == sum([REPORTED["openai"]] * (CYCLES + 1), TokenUsage())
    # who came first was served first, but for those who are served at the same time
    assert sorted(order) == list(range(AGENTS))
    assert max(abs(place - number) for place, number in enumerate(order)) < PLACES
