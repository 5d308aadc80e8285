"""A worker as a process of its own, to be killed: it takes drives, says so, and never ends them.

What it has already is done at once when it is delivered again.

Arguments: the engine as JSON, the journal, the queue.
"""

import asyncio
import json
import sys
from typing import Any

from treefold.engines import Procrastinate, Taken, Temporal, WorkEngine


def make(description: dict[str, Any]) -> WorkEngine:
    kinds = {"Procrastinate": Procrastinate, "Temporal": Temporal}
    return kinds[description.pop("kind")](**description)


async def main(engine: WorkEngine, journal: str, queue: str) -> None:
    taken: set[int] = set()

    async def take(node: int) -> Taken:
        if node in taken:
            return Taken.Done
        taken.add(node)
        sys.stdout.write(f"{node}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
        return Taken.Done

    await engine.open(journal)
    await engine.work(take, queues=[queue], slots=4, stop=asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(make(json.loads(sys.argv[1])), *sys.argv[2:]))
