"""Functions that wait for files, for trees that are commanded from other processes.

``commanded_functions.py URL ENGINE QUEUE...`` is a worker for these queues until it is killed.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from notes_in_files import note
from treefold import CodeFunction, RunContext, Runtime, WorkerSettings
from work_engines import make_engine

FAR: Final = "far"
SETTINGS: Final = WorkerSettings(lease=12.0, beat=0.5, sweep=0.1, poll=0.1)


async def _wait(ctx: RunContext, folder: str, name: str) -> str:
    note(folder, "begun", name)
    while not (Path(folder) / name).exists():  # noqa: ASYNC110 - the test makes it
        await asyncio.sleep(0.01)
    return name


async def _step(ctx: RunContext, folder: str, name: str) -> str:
    note(folder, "stepped", name)
    return name


WAIT: Final = CodeFunction(name="wait", callable=_wait, repeatable=True)
CHARGE: Final = CodeFunction(name="charge", callable=_wait)
FAR_WAIT: Final = CodeFunction(name="far_wait", callable=_wait, repeatable=True, remote=FAR)
STEP: Final = CodeFunction(name="step", callable=_step, repeatable=True)


def _then_step(name: str, first: CodeFunction) -> CodeFunction:
    async def work(ctx: RunContext, folder: str, name: str) -> str:
        args = {"folder": folder, "name": name}
        await ctx.invoke(first, args)
        return f"done {await ctx.invoke(STEP, args)}"

    return CodeFunction(name=name, callable=work, uses=[first, STEP], repeatable=True)


async def _ask(ctx: RunContext, folder: str, name: str) -> str:
    await ctx.ask("Go on?", ["yes", "no"])
    return f"done {name}"


WORK: Final = _then_step("work", WAIT)
PAY: Final = _then_step("pay", CHARGE)
SEND: Final = _then_step("send", FAR_WAIT)
ASK: Final = CodeFunction(name="ask", callable=_ask, repeatable=True)
FUNCTIONS: Final = (WORK, PAY, SEND, ASK)


async def main() -> None:
    url, engine, *queues = sys.argv[1:]
    settings = replace(SETTINGS, queues=queues)
    placed = make_engine(engine, url)
    async with Runtime(FUNCTIONS, store=url, engine=placed, worker=settings) as runtime:
        await runtime.work()


if __name__ == "__main__":
    asyncio.run(main())
