"""What agents and chats cost beside the same work by hand, on the same server, in one run.

CPU time and memory of this process; the server has its own. Prints a table and writes JSON.
"""

import asyncio
import gc
import tracemalloc
from contextlib import AbstractAsyncContextManager
from typing import Any

import by_hand
from side_by_side import Row, Run, compare

from models import PATHS, add, ours
from treefold import AgentFunction, AgentOptions, Client, Limits, Runtime
from treefold.models import Model

AGENTS = 500
CYCLES = 5
LIMIT = 50


def worker(model: Model) -> AgentFunction:
    """Return an agent that adds until the server has had enough."""
    return AgentFunction(
        "work", "Add.", user_prompt_template="go", uses=[add], default_model=model, max_steps=1000
    )


def alone(agent: AgentFunction) -> Run:
    """Return a run of one call of *agent*."""

    async def run() -> str:
        async with Runtime([agent]) as runtime:
            return await runtime.invoke(agent)

    return run


def chat(model: Model) -> Run:
    """Return a run of one turn in which a client makes the calls."""
    options = AgentOptions("", model, tools=[add], auto_execute_tools=True)
    options.max_tool_iterations = 1000

    async def run() -> str:
        async with Client(options) as client:
            await client.query("go")
            async for _ in client.receive_messages():
                pass
            return client.history[-1]["content"]

    return run


def crowd(agent: AgentFunction) -> Run:
    """Return a run of many calls at once, of which a few may make requests."""

    async def run() -> str:
        async with Runtime([agent], limits=Limits(LIMIT)) as runtime:
            nodes = [runtime.invoke(agent) for _ in range(AGENTS)]
            answers = [await node for node in nodes]
            return answers[0]

    return run


def crowd_by_hand(converse: Any) -> Run:
    """Return the same without us."""

    async def run() -> str:
        places = asyncio.Semaphore(LIMIT)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_in_turn(places, converse)) for _ in range(AGENTS)]
        return tasks[0].result()

    return run


async def _in_turn(places: AbstractAsyncContextManager[Any], converse: Any) -> str:
    async with places:
        return await converse()


async def memory(agent: AgentFunction) -> tuple[float, float]:
    """Return the kB that each of many agents takes at most, and when it has ended."""
    await crowd(agent)()  # what is loaded and cached once is not the agents'
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    async with Runtime([agent], limits=Limits(LIMIT)) as runtime:
        nodes = [runtime.invoke(agent) for _ in range(AGENTS)]
        for node in nodes:
            await node
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (peak - before) / AGENTS / 1000, (after - before) / AGENTS / 1000


async def measure(host: str, rounds: int) -> tuple[list[Row], dict[str, float]]:
    """Measure everything."""
    rows: list[Row] = []
    opened: list[Any] = []
    for protocol, path in PATHS.items():
        for calls, target in ((10, 1.5), (200, 1.5)):
            base = f"{host}/{calls}/20"
            http = by_hand.Httpx(base + path)
            opened.append(http)
            theirs = _conversation(protocol, http)
            mine = alone(worker(ours(protocol, base)))
            rows.append(
                Row(f"{protocol}: agent's cycle, {calls} of them", target, calls, mine, theirs)
            )
            talk = chat(ours(protocol, base))
            rows.append(
                Row(f"{protocol}: client's cycle, {calls} of them", target, calls, talk, theirs)
            )
    for calls, target in ((10, 2.0), (200, 1.2)):
        base = f"{host}/{calls}/20"
        http = by_hand.Aiohttp(base + PATHS["openai"])
        opened.append(http)
        mine, theirs = alone(worker(ours("openai", base))), _conversation("openai", http)
        name = f"openai: agent's cycle, {calls} of them, beside aiohttp"
        rows.append(Row(name, target, calls, mine, theirs))
    base = f"{host}/{CYCLES}/20"
    agent = worker(ours("openai", base))
    http = by_hand.Aiohttp(base + PATHS["openai"])
    opened.append(http)
    sides = crowd(agent), crowd_by_hand(_conversation("openai", http))
    name = f"openai: {AGENTS} agents, {LIMIT} requests at once, one"
    rows.append(Row(name, 3.5, AGENTS * (CYCLES + 1), *sides))
    for row in rows:
        await row.warm_up()
    for _ in range(rounds):
        for row in rows:
            await row.measure()
    peak, kept = await memory(agent)
    for http in opened:
        await http.close()
    what = f"kB of each of {AGENTS} agents of {CYCLES} cycles"
    return rows, {f"{what}, at most": peak, f"{what}, kept when they have ended": kept}


def _conversation(protocol: str, http: Any) -> Run:
    return lambda: getattr(by_hand, protocol)(http)


if __name__ == "__main__":
    compare(__doc__, "agent", measure)
