"""What a journal costs: the time and the bytes of a step, loading, and agents that wait for people.

    python bench/durable.py [--rounds 3] [--out bench/results/durable.json]

A step is a response of a model and the call that it asks for, with 4,000 bytes in one of them. The
floor is the same bytes written by hand, in two commits: machines and disks differ and are noisy, so
read the ratios, which are the medians over the rounds of one run.
"""

import argparse
import asyncio
import gc
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import by_hand

from treefold import AgentFunction, CodeFunction, RunContext, Runtime, SqliteStore
from treefold.core.errors import FencedError
from treefold.stores import Batch
from treefold.testing import ScriptedModel
from treefold.toolbox import human_in_loop

Synchronous = Literal["NORMAL", "FULL"]

PAYLOAD = 4_000
STEPS = (10, 50, 200)
PLACES = ("text", "arguments", "result")
EVENTS = 100_000
STEPS_OF_MANY = 200  # of each tree that has some of these events
PARKED = 10_000
IDLE = 3.0  # seconds

BYTES = 1.3 * PAYLOAD + 1_500  # that a step may take in a file of 200 steps
MODES: tuple[Synchronous, ...] = ("NORMAL", "FULL")


def noise(seed: str) -> str:
    """Return a text of the size of the payload, of which nothing comes twice."""
    return f"{random.Random(seed).getrandbits(PAYLOAD * 4):0{PAYLOAD}x}"


class Canned(ScriptedModel):
    """A model that costs next to nothing: it does not look at what it is told."""

    def __init__(self, replies: list[dict[str, Any]]) -> None:
        super().__init__(name="canned")
        self._replies = [_encoded(reply) for reply in replies]

    def endpoint(self) -> Any:
        return _Endpoint(deque(self._replies))


class _Endpoint:
    """Stands where a server would, for one conversation."""

    address = "the bench"
    key_name = ""

    def __init__(self, replies: deque[bytes]) -> None:
        self._replies = replies

    def clean(self, error: Any) -> Any:
        return error

    async def open(self, body: bytes) -> "_Stream":
        return _Stream(self._replies.popleft())


class _Stream:
    def __init__(self, reply: bytes) -> None:
        self._rest = [reply]

    async def read(self) -> bytes:
        await asyncio.sleep(0)  # as a socket would
        return self._rest.pop() if self._rest else b""

    async def close(self) -> None:
        self._rest.clear()


def _encoded(delta: dict[str, Any]) -> bytes:
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    chunks = [
        {"choices": [{"index": 0, "delta": delta}]},
        {"choices": [{"index": 0, "finish_reason": "stop"}], "usage": usage},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def asking(number: int, text: str, function: str, args: dict[str, Any]) -> dict[str, Any]:
    """Return a response that asks for a call."""
    call = {"name": function, "arguments": json.dumps(args)}
    return {"content": text, "tool_calls": [{"index": 0, "id": f"call_{number}", "function": call}]}


def worker(steps: int, place: str, *, name: str = "work") -> AgentFunction:
    """Return an agent of that many steps with the payload in one *place* of each."""
    kept = [noise(f"{place} {number}") for number in range(steps)]

    async def look(ctx: RunContext, number: int, query: str) -> str:
        """Look something up."""
        return kept[number] if place == "result" else "nothing"

    replies = [
        asking(
            number,
            text if place == "text" else "I look.",
            "look",
            {"number": number, "query": text if place == "arguments" else "all"},
        )
        for number, text in enumerate(kept)
    ]
    return AgentFunction(
        name,
        "Look.",
        user_prompt_template="go",
        uses=[CodeFunction(callable=look)],
        default_model=Canned([*replies, {"content": "done"}]),
        max_steps=steps + 1,
    )


class TimedStore(SqliteStore):
    """Knows how many seconds it has spent on writing."""

    spent = 0.0

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        start = time.perf_counter()
        try:
            return super().append(batches)
        finally:
            self.spent += time.perf_counter() - start


async def run_steps(
    steps: int, place: str, path: Path | None, synchronous: Synchronous
) -> tuple[float, float]:
    """Return the milliseconds of a step, and of writing it; without a *path* it has no journal."""
    agent = worker(steps, place)
    store = None if path is None else TimedStore(path, synchronous=synchronous)
    gc.collect()
    async with Runtime([agent], store=store) as runtime:
        start = time.perf_counter()
        assert await runtime.invoke(agent) == "done"
        whole = time.perf_counter() - start
    return whole / steps * 1e3, (0 if store is None else store.spent) / steps * 1e3


def floor_of_steps(steps: int, path: Path, synchronous: Synchronous) -> float:
    """Return the milliseconds in which the bytes of a step are written by hand."""
    texts = [noise(str(number)) for number in range(steps)]
    gc.collect()
    start = time.perf_counter()
    by_hand.journal(path, texts, synchronous)
    return (time.perf_counter() - start) / steps * 1e3


async def measure_steps(rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    """Measure steps of each kind, next to the same without a journal or a disk, and by hand."""
    found: dict[str, dict[str, float]] = {}
    for place in PLACES:
        for steps in STEPS:
            times: dict[str, list[float]] = {}
            size = 0
            for number in range(rounds):
                path = folder / f"{place}-{steps}-{number}"
                one: dict[str, float] = {}
                one["none"], _ = await run_steps(steps, place, None, "FULL")
                one["no disk"], _ = await run_steps(steps, place, Path(":memory:"), "FULL")
                for mode in MODES:
                    file = path.with_suffix(f".{mode}")
                    one[mode], one[f"{mode} writing"] = await run_steps(steps, place, file, mode)
                    one[f"{mode} by hand"] = floor_of_steps(steps, path.with_suffix(".hand"), mode)
                    size = file.stat().st_size
                one["ratio"] = (one["FULL"] - one["none"]) / one["FULL by hand"]
                for name, value in one.items():
                    times.setdefault(name, []).append(value)
            row = {name: statistics.median(values) for name, values in times.items()}
            row["bytes"] = size / steps
            row["of bound"] = row["bytes"] / BYTES
            found[f"{place}, {steps} steps"] = row
    return found


# Loading


async def write_many(path: Path) -> AgentFunction:
    """Write trees of about so many events; return the function that they are calls of."""
    agent = worker(STEPS_OF_MANY, "none")
    async with Runtime([agent], store=SqliteStore(path, synchronous="NORMAL")) as runtime:
        nodes = [runtime.invoke(agent) for _ in range(EVENTS // 5 // STEPS_OF_MANY)]
        for node in nodes:
            await node
    return agent


async def measure_loading(path: Path) -> dict[str, float]:
    """Measure how long it takes to have all trees of a file in memory."""
    agent = await write_many(path)
    gc.collect()
    start = time.process_time()
    events = by_hand.read_journal(path)
    floor = time.process_time() - start
    async with Runtime([agent], store=path) as runtime:
        wall, cpu = time.perf_counter(), time.process_time()
        # The trees have ended, so each is read when its calls are looked at.
        trees = [runtime.get_subtree(root.id) for root in runtime.list_toplevel()]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert all(len(calls) == STEPS_OF_MANY + 1 for calls in trees)
    return {"events": events, "seconds": wall, "cpu": cpu, "by hand": floor, "ratio": cpu / floor}


# Waiting


def asker() -> AgentFunction:
    """Return an agent that asks a person."""
    asks = asking(0, "I ask.", "human_in_loop", {"question": "May I?"})
    return AgentFunction(
        "ask",
        "Ask.",
        user_prompt_template="go",
        uses=[human_in_loop],
        default_model=Canned([asks, {"content": "done"}]),
    )


async def park(path: Path) -> None:
    """Write a file in which many agents wait."""
    agent = asker()
    async with Runtime([agent], store=SqliteStore(path, synchronous="NORMAL")) as runtime:
        for _ in range(PARKED):
            runtime.invoke(agent)
        while len(runtime.questions()) < PARKED:  # noqa: ASYNC110 - nobody tells of the last
            await asyncio.sleep(0.1)


async def wake_up(path: Path, parked: int) -> dict[str, float]:
    """Measure a start, and doing nothing after it."""
    agent = asker()
    start, cpu = time.perf_counter(), time.process_time()
    async with Runtime([agent], store=path) as runtime:
        found = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        cpu = time.process_time()
        await asyncio.sleep(IDLE)
        found["idle cpu"] = time.process_time() - cpu
        found["MB"] = _most_memory()
        start = time.perf_counter()
        assert len(runtime.questions()) == parked
        found["listing"] = time.perf_counter() - start
        return found


def _most_memory() -> float:
    """Return the MB that this process has had at most."""
    # What the system keeps for a process also counts what its parent had when it was forked.
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [one for one in status.read_text().splitlines() if one.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure_waiting(path: Path) -> dict[str, float]:
    """Measure the start in a process of its own."""
    await park(path)
    found = _started(path, PARKED)
    empty = _started(path.with_name("empty.db"), 0)
    return found | {f"empty {name}": value for name, value in empty.items()}


def _started(path: Path, parked: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--wake-up", str(path), "--parked", str(parked)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def report(found: dict[str, Any]) -> None:
    """Print what was measured."""
    columns = (
        "none", "no disk", "NORMAL", "FULL", "FULL writing", "FULL by hand", "ratio",
        "bytes", "of bound",
    )  # fmt: skip
    print(f"{'ms of a step, 4,000 bytes in its':36}" + "".join(f"{c:>14}" for c in columns))
    for name, row in found["steps"].items():
        print(f"{name:36}" + "".join(f"{row[column]:14.2f}" for column in columns))
    print("\nnone: without a journal; no disk: with one that is kept in memory")
    print("writing: that part of the time in which the store writes")
    print("ratio: what the journal adds, to two commits of the same bytes by hand")
    print(f"bound: of 200 steps, {BYTES:.0f} bytes each\n")
    load, start = found["load"], found["start"]
    print(
        f"{load['events']:.0f} events load in {load['seconds']:.2f} s, {load['ratio']:.1f} times as"
        " long as their JSON is read by hand"
    )
    print(
        f"{PARKED} parked agents: a start takes {start['seconds']:.2f} s and {start['MB']:.0f} MB"
        f" (an empty file: {start['empty seconds']:.2f} s, {start['empty MB']:.0f} MB), the list of"
        f" their questions {start['listing']:.2f} s, and {IDLE:.0f} s of waiting"
        f" {start['idle cpu']:.3f} s of CPU time"
    )


async def measure(rounds: int) -> dict[str, Any]:
    """Measure everything."""
    with tempfile.TemporaryDirectory(prefix="treefold-bench-") as name:
        folder = Path(name)
        return {
            "python": platform.python_version(),
            "steps": await measure_steps(rounds, folder),
            "load": await measure_loading(folder / "many.db"),
            "start": await measure_waiting(folder / "parked.db"),
        }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/durable.json")
    parser.add_argument("--wake-up", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--parked", type=int, default=PARKED, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.wake_up is not None:
        print(json.dumps(asyncio.run(wake_up(options.wake_up, options.parked))))
        return
    print(f"Python {platform.python_version()}, {options.rounds} rounds\n")
    found = asyncio.run(measure(options.rounds))
    report(found)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
