"""What calls, turns and imports cost, side by side in one run.

    python bench/run.py [--rounds 7] [--out bench/results/latest.json]

Times are CPU microseconds per operation. Machines differ and are noisy, so read the ratios: every
round measures each operation right after the yardstick, ``await asyncio.create_task(f())``, and the
ratio is the median over the rounds.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from treefold import Agent, RunContext, Runtime, Turn, registries, tool

Operation = Callable[[int], Awaitable[None]]  # does it that many times

TARGETS = {
    "tool called directly": 2.0,
    "child call by ctx.invoke": 3.5,
    "turn": 5.0,
    "turn through an agent": 6.0,
    "child call after 10,000 siblings": 3.5,
    "child call at depth 200": 3.5,
}
IMPORTS = {
    "import treefold": 0.1,
    "from treefold import Runtime, tool": 3.0,  # asyncio is a third of it
    "from treefold import Agent, Runtime, Turn, tool": 3.2,
}


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def plain() -> int:
    """Do nothing much; the yardstick awaits this in a task."""
    return 3


async def yardstick(times: int) -> None:
    """Await a task."""
    for _ in range(times):
        await asyncio.create_task(plain())  # noqa: TID251 - this is what the rest is measured by


async def direct(times: int) -> None:
    """Call a tool."""
    for _ in range(times):
        await add(a=1, b=2)


async def turn(times: int) -> None:
    """Make a turn and run it."""
    for _ in range(times):
        await Turn(add, kwargs={"a": 1, "b": 2}).returning()


async def turn_through_agent(times: int) -> None:
    """Queue turns and let an agent run them."""
    with registries():
        agent = Agent("worker", "Works", [add])
    for _ in range(times):
        await agent.put(Turn(add, kwargs={"a": 1, "b": 2}))
    async for _ in agent.run():
        pass


async def measure(operation: Operation, times: int) -> float:
    """Return the CPU microseconds of one time."""
    gc.collect()
    start = time.process_time()
    await operation(times)
    return (time.process_time() - start) / times * 1e6


class Rounds:
    """The rounds of one operation, each with the yardstick beside it."""

    def __init__(self) -> None:
        self.micros: list[float] = []
        self.ratios: list[float] = []

    async def add(self, operation: Operation, times: int) -> None:
        """Measure one more round."""
        before = await measure(yardstick, times)
        micros = await measure(operation, times)
        after = await measure(yardstick, times)
        self.micros.append(micros)
        self.ratios.append(micros / ((before + after) / 2))


async def children(rounds: Rounds, times: int, *, siblings: int = 0, depth: int = 0) -> None:
    """Measure child calls, under a node that has *siblings* children and is *depth* deep."""

    async def calls(ctx: RunContext) -> None:
        async def invoke(times: int) -> None:
            for _ in range(times):
                await ctx.invoke(add, {"a": 1, "b": 2})

        await invoke(max(siblings, 10))
        await rounds.add(invoke, times)

    with registries():

        @tool(uses=[add])
        async def descend(ctx: RunContext, left: int) -> None:
            """Go down, then measure."""
            if left:
                await ctx.invoke(descend, {"left": left - 1})
            else:
                await calls(ctx)

        descend.uses_recursion, descend.max_depth = True, depth + 1
        async with Runtime() as runtime:
            await runtime.invoke(descend, {"left": depth})


async def calls(rounds: int, times: int) -> dict[str, Rounds]:
    """Measure everything that happens in one process."""
    found = {name: Rounds() for name in TARGETS}
    for operation in (yardstick, direct, turn, turn_through_agent):
        await operation(200)
    for _ in range(rounds):
        await found["tool called directly"].add(direct, times)
        await found["turn"].add(turn, times)
        await found["turn through an agent"].add(turn_through_agent, times)
        await children(found["child call by ctx.invoke"], times)
        await children(found["child call after 10,000 siblings"], times, siblings=10_000)
        await children(found["child call at depth 200"], times, depth=200)
    return found


def imports(rounds: int) -> dict[str, Rounds]:
    """Measure imports, with ``import pydantic`` as the yardstick."""
    found = {code: Rounds() for code in IMPORTS}
    for _ in range(rounds):
        nothing = _cpu_of("pass")
        pydantic = _cpu_of("import pydantic") - nothing
        for code, measured in found.items():
            cost = _cpu_of(code) - nothing
            measured.micros.append(cost * 1e6)
            measured.ratios.append(cost / pydantic)
    return found


def _cpu_of(code: str) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    times: list[float] = []
    for _ in range(3):
        start = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        end = getrusage(RUSAGE_CHILDREN)
        times.append(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime)
    return min(times)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=2000, help="operations in a round")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/latest.json")
    options = parser.parse_args()

    print(f"Python {platform.python_version()}, {options.rounds} rounds of {options.times}\n")
    found = asyncio.run(calls(options.rounds, options.times))
    found |= imports(options.rounds)
    targets = TARGETS | IMPORTS
    print(f"{'operation':48}{'us':>9}{'ratio':>8}{'target':>8}")
    rows: dict[str, dict[str, object]] = {}
    for name, rounds in found.items():
        micros, ratio = statistics.median(rounds.micros), statistics.median(rounds.ratios)
        verdict = "" if ratio <= targets[name] else "  above"
        print(f"{name:48}{micros:9.1f}{ratio:8.2f}{targets[name]:8.1f}{verdict}")
        rows[name] = {"micros": rounds.micros, "ratios": rounds.ratios, "target": targets[name]}
    print("\nratio: to 'await asyncio.create_task(f())'; for imports, to 'import pydantic'")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(
        json.dumps({"python": platform.python_version(), "rows": rows}, indent=1)
    )
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
