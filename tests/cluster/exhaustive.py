"""Kill a worker before and after every commit: python -m cluster.exhaustive.

Another worker takes each tree over, with and without remote calls. It takes long.
"""

import itertools
import sys
import tempfile
from pathlib import Path

from cluster.test_takeover import killed_and_finished
from postgres_server import SharedServer, new_name, shared_url, with_query


def main() -> None:
    """Go through all commits of a run, until the worker is not killed any more."""
    server = SharedServer()
    try:
        for remote in (False, True):
            for moment in ("before", "after"):
                for number in itertools.count(1):
                    kill = f"{moment}:{number}"
                    url = with_query(shared_url(), schema=new_name())
                    with tempfile.TemporaryDirectory() as folder:
                        killed = killed_and_finished(url, Path(folder), kill, remote=remote)
                    if not killed:
                        break
                    sys.stdout.write(f"{'remote calls, ' if remote else ''}killed {kill}: right\n")
                    sys.stdout.flush()
    finally:
        server.close()


if __name__ == "__main__":
    main()
