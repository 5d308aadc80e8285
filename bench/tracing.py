"""What tracing costs a run: the same run with spans for OpenTelemetry and without, side by side.

    python bench/tracing.py [--rounds 5] [--out bench/results/tracing.json]

The journal is a SQLite file, and whoever is given the spans throws them away. Machines differ and
are noisy, so read the ratios, which are the medians over the rounds of one run.
"""

import argparse
import asyncio
import gc
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from durable import Canned, asking, worker
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from treefold import AgentFunction, CodeFunction, RunContext, Runtime, SqliteStore
from treefold.core.function import Function
from treefold.views import otel

STEPS = 200
CALLS = 2_000
AGENTS = 20
LATENCY = 0.02  # seconds; real models are slower

Job = tuple[Function, Callable[[Runtime], Awaitable[object]]]


class Bin(SpanExporter):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Forget *spans*."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS


def steps() -> Job:
    """Return an agent whose model answers at once: nothing but our own work."""
    agent = worker(STEPS, "result")
    return agent, lambda runtime: runtime.invoke(agent)


def calls() -> Job:
    """Return code that calls code, as fast as it can."""

    async def add(ctx: RunContext, n: int) -> int:
        return n + 1

    adding = CodeFunction(callable=add)

    async def count(ctx: RunContext) -> int:
        n = 0
        for _ in range(CALLS):
            n = await ctx.invoke(adding, {"n": n})
        return n

    counting = CodeFunction(callable=count, uses=[adding])
    return counting, lambda runtime: runtime.invoke(counting)


class Slow(Canned):
    """A model that takes its time, though less than any real one."""

    def endpoint(self) -> Any:
        """Return one that waits first."""
        inner = super().endpoint()
        opened = inner.open

        async def open_later(body: bytes) -> Any:
            await asyncio.sleep(LATENCY)
            return await opened(body)

        inner.open = open_later
        return inner


def agents() -> Job:
    """Return many agents at once that wait for their models most of the time."""

    async def look(ctx: RunContext, number: int) -> str:
        """Look something up."""
        return "x" * 4_000

    replies = [asking(n, "I look.", "look", {"number": n}) for n in range(10)]
    agent = AgentFunction(
        "work",
        "Look.",
        user_prompt_template="go",
        uses=[CodeFunction(callable=look)],
        default_model=Slow([*replies, {"content": "done"}]),
        max_steps=20,
    )

    async def run(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AGENTS):
                group.create_task(_wait(runtime, agent))

    return agent, run


async def _wait(runtime: Runtime, agent: AgentFunction) -> None:
    await runtime.invoke(agent)


async def seconds(job: Job, path: Path, *, traced: bool) -> tuple[float, float, int]:
    """Return how long the job took, how long the rest of its spans took after it, and how many."""
    function, run = job
    store, exporter = SqliteStore(path, synchronous="NORMAL"), Bin()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    gc.collect()
    async with Runtime([function], store=store) as runtime:
        tracing = otel.trace(runtime, provider) if traced else None
        start = time.perf_counter()
        await run(runtime)
        took = time.perf_counter() - start
        if tracing is not None:
            assert await asyncio.to_thread(tracing.close, 60)
    rest = time.perf_counter() - start - took
    provider.shutdown()
    return took, rest, exporter.spans


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Measure each job, one side after the other."""
    jobs = {
        f"an agent of {STEPS} steps, its model answers at once": steps,
        f"{CALLS:,} calls of code, one by one": calls,
        f"{AGENTS} agents at once, models take {LATENCY * 1e3:.0f} ms": agents,
    }
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="treefold-bench-") as folder:
        for name, make in jobs.items():
            rows: list[tuple[float, float, float, int]] = []
            for number in range(rounds + 1):
                path = Path(folder) / f"{make.__name__}-{number}"
                plain, _, _ = await seconds(make(), path.with_suffix(".plain"), traced=False)
                took, rest, spans = await seconds(make(), path.with_suffix(".traced"), traced=True)
                rows.append((plain, took, rest, spans))
            rows = rows[1:]  # the first one loads what is needed
            found[name] = {
                "ms": statistics.median(plain for plain, *_ in rows) * 1e3,
                "ratio": statistics.median(took / plain for plain, took, *_ in rows),
                "rest ms": statistics.median(rest for _, _, rest, _ in rows) * 1e3,
                "spans": rows[-1][3],
            }
    return found


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/tracing.json")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {options.rounds} rounds\n")
    found = asyncio.run(measure(options.rounds))
    print(f"{'':56}{'ms':>9}{'ratio':>8}{'rest ms':>9}{'spans':>8}")
    for name, row in found.items():
        numbers = f"{row['ms']:9.0f}{row['ratio']:8.2f}{row['rest ms']:9.0f}{row['spans']:8.0f}"
        print(f"{name:56}{numbers}")
    print("\nratio: of a run that is traced to one that is not; rest: what is sent after its end")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
