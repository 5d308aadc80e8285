"""Two sides of one measurement, round by round, against one server on loopback."""

import argparse
import asyncio
import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

Run = Callable[[], Awaitable[str]]


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


def compare(
    description: str | None,
    kind: str,
    measure: Callable[[str, int], Coroutine[Any, Any, tuple[Sequence[Row], Mapping[str, float]]]],
) -> None:
    """Start the server, *measure*, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    out = Path(__file__).parent / f"results/{kind}s.json"
    parser.add_argument("--out", type=Path, default=out)
    options = parser.parse_args()
    command = [sys.executable, str(Path(__file__).parent / "server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        host = f"http://127.0.0.1:{int(server.stdout.readline())}"
        try:
            rows, more = asyncio.run(measure(host, options.rounds))
        finally:
            server.stdin.close()
    print(f"Python {platform.python_version()}, {options.rounds} rounds\n")
    print(f"{kind:48}{'us':>9}{'ratio':>8}{'target':>8}")
    for row in rows:
        micros, ratio = statistics.median(row.micros), statistics.median(row.ratios)
        verdict = "" if ratio <= row.target else "  above"
        print(f"{row.name:48}{micros:9.1f}{ratio:8.2f}{row.target:8.1f}{verdict}")
    print("\nratio: to plain httpx by hand; for many at once, and where it is said, to aiohttp")
    for name, value in more.items():
        print(f"{name}: {value:.1f}")
    found = {
        row.name: {"micros": row.micros, "ratios": row.ratios, "target": row.target} for row in rows
    }
    result = {"python": platform.python_version(), "rows": found, "more": dict(more)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))
    print(f"written to {options.out}")
