"""The CPU time of whole trees that a worker in another process runs: of the server, of the worker.

    python bench/whole_trees.py [--trees 200] [--together 8]

A tree is a function that calls another one three times. This process submits the trees through
procrastinate and hears of their results. CPU time counts and not the clock, because what else runs
on the machine changes that less. The server's is that of all its processes; jobs of procrastinate
are in the same database, and so they are part of it.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from treefold import CodeFunction, RunContext, Runtime
from treefold.engines import Procrastinate
from treefold.stores.postgres import PostgresStore

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from postgres_server import PostgresServer  # noqa: E402 - it is beside the tests

STEPS: Final = 3
IDLE: Final = 5.0  # seconds
PATIENCE: Final = 60.0  # seconds
_TICKS: Final = os.sysconf("SC_CLK_TCK")


async def look(ctx: RunContext, number: int) -> int:
    """Look something up."""
    return number


LOOK: Final = CodeFunction(callable=look, repeatable=True)


async def work(ctx: RunContext, number: int) -> int:
    """Do the steps."""
    return sum([await ctx.invoke(LOOK, {"number": number + step}) for step in range(STEPS)])


WORK: Final = CodeFunction(callable=work, uses=[LOOK], repeatable=True)


def runtime(url: str) -> Runtime:
    """Return the runtime of the worker, or of the program that submits."""
    return Runtime([WORK], store=PostgresStore(url), engine=Procrastinate(url))


def _fields(process: int) -> list[str]:
    # What comes before is the name of the program, in parentheses, with any characters.
    return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(") ")[2].split()


def cpu_of_process(process: int) -> float:
    """Return the milliseconds of CPU time of a process."""
    # As clock_getcpuclockid(3) makes it. The times in /proc are counted in hundredths of a second,
    # which is too coarse for many processes that do little.
    return time.clock_gettime(~process << 3 | 2) * 1e3


def cpu_of_server(server: int) -> float:
    """Return the milliseconds of CPU time of a server, whose sessions are processes."""
    ended = sum(map(int, _fields(server)[13:15])) * 1e3 / _TICKS
    found = cpu_of_process(server) + ended
    for folder in Path("/proc").iterdir():
        # One may end meanwhile.
        with suppress(OSError):
            if folder.name.isdecimal() and int(_fields(int(folder.name))[1]) == server:
                found += cpu_of_process(int(folder.name))
    return found


@contextmanager
def working(url: str) -> Generator[int]:
    """Have a worker in another process; yield the id of the process."""
    command = [sys.executable, __file__, "--worker", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


async def run_worker(url: str) -> None:
    """Run what is submitted until this process is ended."""
    async with runtime(url) as its:
        await its.work()


async def run_trees(its: Runtime, count: int, together: int) -> None:
    """Submit trees, so many at once, and wait for their results."""
    left = iter(range(count))

    async def run_some() -> None:
        for number in left:
            expected = STEPS * number + sum(range(STEPS))
            async with asyncio.timeout(PATIENCE):
                assert await its.invoke(WORK, {"number": number}) == expected

    async with asyncio.TaskGroup() as group:
        for _ in range(together):
            group.create_task(run_some())


async def measure(server: PostgresServer, trees: int, together: int) -> dict[str, float]:
    """Return the milliseconds of CPU time of a tree, and of a second in which nothing happens."""
    url = server.url()
    found: dict[str, float] = {}
    async with runtime(url) as its:
        with working(url) as worker:
            # Plans are made, modules imported, connections opened.
            await run_trees(its, 50, together)

            def now() -> dict[str, float]:
                return {
                    "server": cpu_of_server(server.pid),
                    "worker": cpu_of_process(worker),
                    "submitter": time.process_time() * 1e3,
                }

            before = now()
            begun = time.perf_counter()
            await run_trees(its, trees, together)
            seconds = time.perf_counter() - begun
            after = now()
            found |= {name: (after[name] - before[name]) / trees for name in after}
            found["wall"] = seconds * 1e3 / trees
            await asyncio.sleep(1)
            before = now()
            await asyncio.sleep(IDLE)
            after = now()
            found |= {f"idle {name}": (after[name] - before[name]) / IDLE for name in after}
    return found


def report(found: dict[str, float]) -> None:
    """Print what was measured."""
    names = ("server", "worker", "submitter")

    def row(what: str, prefix: str) -> None:
        values = ", ".join(f"{name} {found[prefix + name]:.1f}" for name in names)
        print(f"CPU of {what}, ms: {values}")

    row(f"a tree of {STEPS} steps", "")
    row("a second in which nothing happens", "idle ")


def main() -> None:
    """Measure once, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--together", type=int, default=8)
    options = parser.parse_args()
    if options.worker is not None:
        asyncio.run(run_worker(options.worker))
        return
    with PostgresServer({"fsync": "on", "full_page_writes": "on"}) as server:
        report(asyncio.run(measure(server, options.trees, options.together)))


if __name__ == "__main__":
    main()
