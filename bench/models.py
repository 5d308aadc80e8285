"""What a session costs beside the same work by hand, on the same server, in one run.

CPU time of this process; the server has its own. Prints a table and writes JSON beside it.
"""

import argparse
import asyncio
import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import by_hand

from ramify import registries, tool
from ramify.core.model_events import PartCompleted
from ramify.core.transcript import ModelText, ToolResult, ToolUse, UserText
from ramify.models import AnthropicModel, GeminiModel, Model, OpenAIModel

with registries():

    @tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b


Run = Callable[[], Awaitable[str]]
PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1/models/m:streamGenerateContent?alt=sse",
}
CHUNKS = 2_000
AGENTS = 1_000


def ours(protocol: str, base: str) -> Model:
    """Return the model that talks to the server at *base*."""
    if protocol == "openai":
        return OpenAIModel("m", base_url=f"{base}/v1", api_key="key-of-the-bench")
    kind = AnthropicModel if protocol == "anthropic" else GeminiModel
    return kind("m", base_url=base, api_key="key-of-the-bench")


async def converse(model: Model) -> str:
    """Have a conversation with *model*; return the answer."""
    session = model.open("", [add])
    inputs: list[UserText | ToolResult] = [UserText("go")]
    while True:
        parts = [e.part async for e in session.send(*inputs) if isinstance(e, PartCompleted)]
        calls = [part for part in parts if isinstance(part, ToolUse)]
        if not calls:
            return "".join(part.text for part in parts if isinstance(part, ModelText))
        inputs = [ToolResult(call.id, str(await add(**call.args))) for call in calls]


class Row:
    """Ours beside theirs, round by round."""

    def __init__(self, name: str, target: float, unit: float, ours: Run, theirs: Run) -> None:
        self.name = name
        self.target = target
        self._unit = unit  # how many of what is measured are in one run
        self._sides = (ours, theirs)
        self.micros: list[float] = []
        self.ratios: list[float] = []

    async def warm_up(self) -> None:
        """Run both sides, and see that they say the same."""
        mine, other = [await side() for side in self._sides]
        assert mine == other != "", f"{self.name}: {mine[:80]!r} is not {other[:80]!r}"

    async def measure(self) -> None:
        """Add a round."""
        mine, other = [await _cpu(side) for side in self._sides]
        self.micros.append(mine / self._unit * 1e6)
        self.ratios.append(mine / other)


async def _cpu(run: Run) -> float:
    gc.collect()
    start = time.process_time()
    await run()
    return time.process_time() - start


def many(run: Run, times: int) -> Run:
    """Return a run of *times* at once."""

    async def runs() -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_as_coroutine(run)) for _ in range(times)]
        return tasks[0].result()

    return runs


async def _as_coroutine(run: Run) -> str:
    return await run()


async def measure(host: str, rounds: int) -> list[Row]:
    """Measure everything."""
    rows: list[Row] = []
    opened: list[Any] = []

    def pair(protocol: str, calls: int, chunks: int, client: Any) -> tuple[Run, Run]:
        base = f"{host}/{calls}/{chunks}"
        model = ours(protocol, base)
        http = client(base + PATHS[protocol])
        opened.append(http)
        loop = getattr(by_hand, protocol)
        return lambda: converse(model), lambda: loop(http)

    for protocol in PATHS:
        for calls, target in ((10, 1.3), (200, 1.5)):
            sides = pair(protocol, calls, 20, by_hand.Httpx)
            rows.append(Row(f"{protocol}: tool cycle, {calls} of them", target, calls, *sides))
        sides = pair(protocol, 0, CHUNKS, by_hand.Httpx)
        rows.append(Row(f"{protocol}: streamed chunk", 1.5, CHUNKS, *sides))
        mine, other = pair(protocol, 5, 20, by_hand.Aiohttp)
        crowd = many(mine, AGENTS), many(other, AGENTS)
        rows.append(
            Row(f"{protocol}: {AGENTS} at once, a request of each", 2.5, AGENTS * 6, *crowd)
        )
    for row in rows:
        await row.warm_up()
    for _ in range(rounds):
        for row in rows:
            await row.measure()
    for http in opened:
        await http.close()
    return rows


def main() -> None:
    """Start the server, measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/models.json")
    options = parser.parse_args()
    command = [sys.executable, str(Path(__file__).parent / "server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        host = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            rows = asyncio.run(measure(host, options.rounds))
        finally:
            server.stdin.close()
    print(f"Python {platform.python_version()}, {options.rounds} rounds\n")
    print(f"{'session':48}{'us':>9}{'ratio':>8}{'target':>8}")
    for row in rows:
        micros, ratio = statistics.median(row.micros), statistics.median(row.ratios)
        verdict = "" if ratio <= row.target else "  above"
        print(f"{row.name:48}{micros:9.1f}{ratio:8.2f}{row.target:8.1f}{verdict}")
    print("\nratio: to plain httpx by hand; for many at once, to plain aiohttp by hand")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    found = {
        row.name: {"micros": row.micros, "ratios": row.ratios, "target": row.target} for row in rows
    }
    options.out.write_text(
        json.dumps({"python": platform.python_version(), "rows": found}, indent=1)
    )
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
