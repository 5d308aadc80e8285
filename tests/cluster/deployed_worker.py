"""A worker with one version of a program: ``deployed_worker.py URL ENGINE VERSION POLICY``.

VERSION is ``one`` or ``two``, or ``none`` for a program without the function.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from notes_in_files import note
from treefold import CodeFunction, RunContext, Runtime, WorkerSettings
from work_engines import make_engine

SETTINGS: Final = WorkerSettings(lease=12.0, beat=0.5, sweep=0.1, poll=0.1)


async def _wait(folder: str, name: str, version: str) -> str:
    note(folder, version, name)
    while not (Path(folder) / name).exists():  # noqa: ASYNC110 - the test makes it
        await asyncio.sleep(0.01)
    return version


async def report_one(ctx: RunContext, folder: str, name: str) -> str:
    """Report."""
    return await _wait(folder, name, "one")


async def report_two(ctx: RunContext, folder: str, name: str) -> str:
    """Report, in another way."""
    return await _wait(folder, name, "two")


async def other(ctx: RunContext) -> None:
    """Do something else."""


def functions(version: str) -> Sequence[CodeFunction]:
    """Return the functions of this version of the program."""
    if version == "none":
        return [CodeFunction(callable=other)]
    work = report_one if version == "one" else report_two
    return [CodeFunction(callable=work, name="report", repeatable=True)]


async def main() -> None:
    url, engine, version, policy = sys.argv[1:]
    known: Any = policy
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    async with Runtime(
        functions(version),
        store=url,
        engine=make_engine(engine, url),
        worker=SETTINGS,
        on_new_code=known,
    ) as runtime:
        await runtime.work()


if __name__ == "__main__":
    asyncio.run(main())
