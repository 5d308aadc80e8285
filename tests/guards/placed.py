"""One life of a process that submits guarded runs to PostgreSQL, or runs them, in the same nursery.

``main([WAY, FOLDER, KILL, URL, ENGINE, QUEUE])``: SUBMIT submits one run for each guard, and the
others are ``WAYS`` to run them, as in ``guards.program``. ENGINE is the name of a work engine. If
there is a QUEUE, the calls that are guarded run apart from their callers, on any worker.
"""

import asyncio
import faulthandler
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from guards import guarded
from guards.app import SETTINGS
from guards.guarded import GUARDS, approve, model_for, options_of, other, plan
from guards.program import APP, HERE, PATIENCE, PROGRAM, deny, die_at
from treefold import Observer, Runtime, attach
from treefold.cli import main as treefold
from treefold.errors import TreefoldError
from treefold.stores.postgres.store import PostgresStore
from work_engines import make_engine

SUBMIT: Final = "submit"
LAST: Final = "a worker"


@dataclass(frozen=True)
class Life:
    """Where one process finds its work."""

    url: str
    engine: str

    def runtime(self, **options: Any) -> Runtime:
        """Open the store with the functions, and with no guard unless *options* have one."""
        engine = make_engine(self.engine, self.url)
        return Runtime(
            [plan, other],
            models=model_for(""),
            store=self.url,
            engine=engine,
            worker=SETTINGS,
            **options,
        )


class Rest:
    """Denies what is asked until no run goes on: each has ended, or is held back by this process.

    It looks at the store, as a person does, in a thread of its own, and calls *stop* in the end.
    """

    def __init__(self, url: str, stop: Callable[[], object]) -> None:
        self._url = url
        self._stop = stop
        self._held: set[int] = set()  # the numbers of runs
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        handler = logging.Handler()
        handler.addFilter(self._hear)
        logging.getLogger("treefold.runtime.readiness").addHandler(handler)
        self._thread.start()

    def __exit__(self, *_exc: object) -> None:
        self._thread.join()

    def _hear(self, record: logging.LogRecord) -> bool:
        if found := re.match(r"run (\d+) is held back", record.getMessage()):
            self._held.add(int(found[1]))
        return False

    def _watch(self) -> None:
        end = time.monotonic() + PATIENCE
        with attach(self._url) as observer:
            while [row for row in observer.trees() if row.open and row.number not in self._held]:
                if time.monotonic() > end:
                    os.write(2, b"a run neither ends nor waits")
                    os._exit(1)
                deny(observer)
                time.sleep(0.02)
        self._stop()


def main(arguments: Sequence[str]) -> None:
    """Live once."""
    way, folder, kill, url, engine, queue = arguments
    faulthandler.enable()  # a process that crashes says where
    faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
    os.environ |= {"GUARDED": folder, "GUARDED_QUEUE": queue, "TREEFOLD_STORE": url}
    os.environ["GUARDED_ENGINE"] = engine
    guarded.place_writes()
    die_at(PostgresStore, "append", kill)
    try:
        {SUBMIT: submit, **WAYS}[way](Life(url, engine))
    except TreefoldError as error:  # it was refused, in words
        print(error, file=sys.stderr)  # noqa: T201
    faulthandler.cancel_dump_traceback_later()


def submit(life: Life) -> None:
    """Submit a run for each guard, by a program that has it."""
    for guard in GUARDS:
        with life.runtime(**options_of(guard)) as runtime:
            runtime.invoke(plan, {"guard": guard}, key=guard)
            runtime.flush()


def work(life: Life, **options: Any) -> None:
    """Run what no other worker runs until nothing goes on."""

    async def until_it_rests() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with life.runtime(**options) as runtime:
            with Rest(life.url, lambda: loop.call_soon_threadsafe(stop.set)):
                await runtime.work(stop=stop, drain=1.0)

    asyncio.run(until_it_rests())


def post(life: Life, command: Callable[[Observer, int], Any]) -> None:
    """Post a command about each run, as an observer does, and work."""
    with attach(life.url) as observer:
        for row in observer.trees():
            with suppress(TreefoldError):  # it cannot be done to what was not paused, say
                command(observer, row.id)
    work(life)


def worker_command(life: Life, *words: str) -> None:
    """Run ``treefold worker`` until nothing goes on."""
    with Rest(life.url, lambda: os.kill(os.getpid(), signal.SIGTERM)):
        treefold(["worker", *words, "--drain", "1"])


def worker_of_functions(life: Life, *words: str) -> None:
    """Run ``treefold worker`` with the functions."""
    model = f"scripted:{HERE / 'models.py'}:any_guard"
    options = ("--model", model, "--engine", life.engine, "--lease", "60")
    worker_command(life, PROGRAM, *options, *words)


Way = Callable[[Life], Any]
WAYS: Final[Mapping[str, Way]] = {
    LAST: work,
    "a worker that has the hook": lambda life: work(life, guards=[approve]),
    "treefold worker": worker_of_functions,
    "treefold worker --hooks": lambda life: worker_of_functions(life, "--hooks", PROGRAM),
    "treefold worker of a Runtime": lambda life: worker_command(life, f"{APP}:worker"),
    "fork by an observer": lambda life: post(life, Observer.fork),
    "resume by an observer": lambda life: post(life, Observer.resume),
}
