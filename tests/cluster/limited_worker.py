"""A worker process with limits: ``python limited_worker.py URL PORT CLUSTER_REQUESTS``."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cluster.conftest import QUICK
from cluster.gauge import GaugedModel
from cluster.limited_agents import LEAD, reply
from treefold import Limits, Runtime


def main() -> None:
    url, port, most = sys.argv[1:]
    limits = Limits(50, cluster_requests=int(most))
    model = GaugedModel(reply, int(port))
    with Runtime([LEAD], store=url, models=model, limits=limits, worker=QUICK) as runtime:
        runtime.recover()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
