"""Functions that workers run: a weather report, by one agent for each city.

treefold worker examples/cluster/weather.py --store postgresql://localhost/app --model local
treefold run examples/cluster/weather.py:report --cities '["Lyon", "Oslo"]' --detach \\
    --store postgresql://localhost/app

Nothing here knows of workers. A worker that is killed in the middle of a report leaves what was
done in the database: another one calls ``report`` again, and each call that had ended returns at
once what it returned the first time.
"""

import asyncio
import zlib

from treefold import RunContext, agent, tool


@tool(repeatable=True)  # looking does no harm: after a crash it is simply done again
async def measure(city: str) -> list[float]:
    """Return the temperatures of a city this week, in degrees."""
    await asyncio.sleep(0.1)
    return measure_now(city)


def measure_now(city: str) -> list[float]:
    """Stand in for an instrument, with numbers that depend on the name only."""
    seed = zlib.crc32(city.encode())
    return [(seed >> day) % 300 / 10 for day in range(7)]


@agent(uses=[measure])
def describe(city: str) -> str:
    """Describe the weather of a city in one sentence."""
    return f"Describe the weather of {city} this week in one sentence. Measure it first."


@tool(uses=[describe])
async def report(ctx: RunContext, cities: list[str]) -> dict[str, str]:
    """Return a sentence about the weather of each city."""
    return {city: await ctx.invoke(describe, {"city": city}) for city in cities}
