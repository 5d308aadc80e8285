"""What agents cost beside the same work by hand, on the same server, in one run.

CPU time and memory of this process; the server has its own. Prints a table and writes JSON.
"""

import argparse
import asyncio
import gc
import json
import platform
import statistics
import subprocess
import sys
import tracemalloc
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import by_hand

from models import PATHS, Row, Run, add, ours
from ramify import AgentFunction, Limits, Runtime
from ramify.models import Model

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


async def measure(host: str, rounds: int) -> tuple[list[Row], tuple[float, float]]:
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
    taken = await memory(agent)
    for http in opened:
        await http.close()
    return rows, taken


def _conversation(protocol: str, http: Any) -> Run:
    return lambda: getattr(by_hand, protocol)(http)


def main() -> None:
    """Start the server, measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/agents.json")
    options = parser.parse_args()
    command = [sys.executable, str(Path(__file__).parent / "server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        host = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            rows, (peak, kept) = asyncio.run(measure(host, options.rounds))
        finally:
            server.stdin.close()
    print(f"Python {platform.python_version()}, {options.rounds} rounds\n")
    print(f"{'agent':48}{'us':>9}{'ratio':>8}{'target':>8}")
    for row in rows:
        micros, ratio = statistics.median(row.micros), statistics.median(row.ratios)
        verdict = "" if ratio <= row.target else "  above"
        print(f"{row.name:48}{micros:9.1f}{ratio:8.2f}{row.target:8.1f}{verdict}")
    print("\nratio: to plain httpx by hand; for many at once, to plain aiohttp by hand")
    print(
        f"memory of {AGENTS} agents of {CYCLES} cycles: {peak:.1f} kB each at most, {kept:.1f} kB"
    )
    print("each when they have ended and are kept with their transcripts and events")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {
        row.name: {"micros": row.micros, "ratios": row.ratios, "target": row.target} for row in rows
    }
    result = {
        "python": platform.python_version(),
        "rows": found,
        "memory": {"peak_kb_per_agent": peak, "kept_kb_per_agent": kept},
    }
    options.out.write_text(json.dumps(result, indent=1))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
