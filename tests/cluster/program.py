"""A worker in a process of its own: python -m cluster.program URL EFFECTS [OPTION...].

It runs the tree of the crash tests until its standard input ends. With ``--start`` it starts the
tree as well. ``--die`` says when the process is killed: ``before:N`` or ``after:N``, the N-th
commit of this process; or ``ending:N``, when a drive has ended and its engine has not been told,
for the N-th time. ``--freeze N`` stops the process when half of its N-th commit has been sent.
"""

import argparse
import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

from cluster.quick import QUICK
from crash.effects import Effects
from crash.program import KEY, die
from crash.tree import Stage
from tcp_proxy import Cut, TcpProxy
from treefold import Runtime
from treefold.core.errors import FencedError
from treefold.core.store import Batch
from treefold.engines import Take, Taken, WorkEngine
from treefold.stores.postgres.store import PostgresStore
from work_engines import make_engine
from wrapped_engine import WrappedEngine

PATIENCE: Final = 120  # seconds until a process that hangs says where, and ends


class FatalStore(PostgresStore):
    """Kills its process just before or just after a certain commit, or has it freeze in one."""

    def __init__(self, url: str, moment: str, number: int, proxy: TcpProxy | None = None) -> None:
        super().__init__(url)
        self._moment = moment
        self._number = number
        self._proxy = proxy
        self._commits = 0
        self._one_at_a_time = threading.Lock()

    def append(self, batches: Sequence[Batch]) -> list[int | FencedError]:
        with self._one_at_a_time:
            self._commits += 1
            is_fatal = self._commits == self._number
            if is_fatal and self._moment == "before":
                die()
            if is_fatal and self._proxy is not None:
                self._proxy.arm(Cut.FREEZE)
            results = super().append(batches)
            if is_fatal and self._moment == "after":
                die()
            return results


class FatalEngine(WrappedEngine):
    """Kills its process when so many drives have ended, before the engine knows of the last."""

    def __init__(self, inner: WorkEngine, number: int) -> None:
        super().__init__(inner)
        self._left = number

    async def taking(self, take: Take, node: int) -> Taken:
        taken = await take(node)
        self._left -= 1
        if not self._left:
            die()
        return taken


def main(arguments: Sequence[str]) -> None:
    """Work until the parent closes standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("effects")
    parser.add_argument("--engine")
    parser.add_argument("--die", default="")
    parser.add_argument("--freeze", type=int, default=0)
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--remote", action="store_true")
    parser.add_argument("--clock", type=float, default=0.0)
    options = parser.parse_args(arguments)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    if options.clock:
        right = time.time
        time.time = lambda: right() + options.clock
    with ExitStack() as stack:
        runtime, stage = open_runtime(options, stack)
        if options.engine:
            asyncio.run(work(runtime, stage, start=options.start))
            return
        runtime.recover()
        if options.start:
            runtime.invoke(stage.root, {"n": 1}, key=KEY)
        say_ready()
        sys.stdin.read()
        runtime.close()


def open_runtime(options: argparse.Namespace, stack: ExitStack) -> tuple[Runtime, Stage]:
    """Return a runtime that dies as the options say, and its functions."""
    moment, _, number = options.die.partition(":")
    url, proxy = options.url, None
    if options.freeze:
        parts, number = urlsplit(url), options.freeze
        # In this process: it is stopped as well, and sends the rest when the process continues.
        proxy = stack.enter_context(TcpProxy(parts.port or 5432, spare=b"treefold_", pause=freeze))
        url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
    engine = make_engine(options.engine, options.url) if options.engine else None
    if engine is not None and moment == "ending":
        engine = FatalEngine(engine, int(number))
    stage = make_stage(Effects(options.effects), 0, remote=options.remote)
    models = {"default": stage.model, "crash": stage.model}
    store = FatalStore(url, moment, int(number or 0), proxy)
    runtime = Runtime([stage.root], models=models, store=store, engine=engine, worker=QUICK)
    return runtime, stage


async def work(runtime: Runtime, stage: Stage, *, start: bool) -> None:
    """Run what the engine delivers until the parent closes standard input."""
    stop = asyncio.Event()
    async with runtime, asyncio.TaskGroup() as group:
        working = group.create_task(runtime.work(stop=stop, drain=1.0))
        if start:
            runtime.invoke(stage.root, {"n": 1}, key=KEY)
        say_ready()
        reading = group.create_task(asyncio.to_thread(sys.stdin.read))
        await asyncio.wait({working, reading}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def freeze() -> None:
    """Stop this process until another one has it continue."""
    os.kill(os.getpid(), signal.SIGSTOP)


def make_stage(effects: Effects, run: int, *, remote: bool) -> Stage:
    """Return the functions of the crash tests; if *remote*, two of them run on any worker."""
    stage = Stage(effects, run)
    for function in stage.root.uses:
        if remote and function.name in {"first", "second", "squad"}:
            function.queue = "default"
    return stage


if __name__ == "__main__":
    main(sys.argv[1:])
