"""A worker process with limits: ``python limited_worker.py URL ENGINE PORT CLUSTER_REQUESTS``."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.gauge import GaugedModel
from cluster.limited_agents import LEAD, reply
from cluster.quick import QUICK
from treefold import Limits, Runtime
from work_engines import make_engine


async def main() -> None:
    url, engine, port, most = sys.argv[1:]
    async with Runtime(
        [LEAD],
        store=url,
        engine=make_engine(engine, url),
        models=GaugedModel(reply, int(port)),
        limits=Limits(50, cluster_requests=int(most)),
        worker=QUICK,
    ) as runtime:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await runtime.work()


if __name__ == "__main__":
    asyncio.run(main())
