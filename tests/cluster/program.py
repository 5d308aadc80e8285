"""A worker in a process of its own: python -m cluster.program URL EFFECTS [--kill WHEN] [--start].

It runs the tree of the crash tests. With ``--start`` it starts the tree as well. WHEN is
``before:N`` or ``after:N``, the N-th commit of this process. ``--clock`` sets its clock wrong.
"""

import argparse
import faulthandler
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from cluster.conftest import QUICK
from crash.effects import Effects
from crash.program import KEY, die
from crash.tree import Stage
from treefold import Runtime
from treefold.core.errors import FencedError
from treefold.core.shared_store import Batch
from treefold.stores.postgres.store import PostgresStore

PATIENCE: Final = 120  # seconds until a process that hangs says where, and ends


class FatalStore(PostgresStore):
    """Kills its process just before or just after a certain commit."""

    def __init__(self, url: str, moment: str, number: int) -> None:
        super().__init__(url)
        self._moment = moment
        self._number = number
        self._commits = 0
        self._one_at_a_time = threading.Lock()

    def append_batches(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        with self._one_at_a_time:
            self._commits += 1
            is_fatal = self._commits == self._number
            if is_fatal and self._moment == "before":
                die()
            results = super().append_batches(batches)
            if is_fatal and self._moment == "after":
                die()
            return results


def main(arguments: Sequence[str]) -> None:
    """Work until the parent closes standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("effects")
    parser.add_argument("--kill", default="")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--remote", action="store_true")
    parser.add_argument("--clock", type=float, default=0.0)
    options = parser.parse_args(arguments)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    if options.clock:
        right = time.time
        time.time = lambda: right() + options.clock
    moment, _, number = options.kill.partition(":")
    stage = make_stage(Effects(options.effects), 0, remote=options.remote)
    models = {"default": stage.model, "crash": stage.model}
    store = FatalStore(options.url, moment, int(number or 0))
    runtime = Runtime([stage.root], models=models, store=store, worker=QUICK)
    runtime.recover()
    if options.start:
        runtime.invoke(stage.root, {"n": 1}, key=KEY)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    runtime.close()


def make_stage(effects: Effects, run: int, *, remote: bool) -> Stage:
    """Return the functions of the crash tests; if *remote*, two of them run on any worker."""
    stage = Stage(effects, run)
    for function in stage.root.uses:
        if remote and function.name in {"first", "second", "squad"}:
            function.queue = "default"
    return stage


if __name__ == "__main__":
    main(sys.argv[1:])
