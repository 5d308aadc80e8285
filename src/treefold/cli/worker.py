"""``treefold worker``: run what is submitted to a store that several processes share."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import click

from treefold.cli.engine_choice import choose_engine
from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE
from treefold.cli.health import Health, LoopPulse
from treefold.cli.journal import shared_journal
from treefold.cli.last_resort import LastResort
from treefold.cli.loading import ENGINE_HELP, MODEL_HELP, TARGET, load_functions, load_model
from treefold.cli.options import STORE_VARIABLE, command, read_seconds
from treefold.cli.runtime_options import RuntimeOptions, runtime_options
from treefold.core.errors import FencedError, InvalidValueError, TreefoldError
from treefold.core.function import DEFAULT_QUEUE
from treefold.http_server.address import parse_address
from treefold.http_server.probes import ProbeServer
from treefold.runtime.durable.worker_settings import WorkerPhase, WorkerSettings
from treefold.runtime.runtime import Runtime
from treefold.views.text import printable

_SLOTS: Final = 50
_DRAIN: Final = 60.0  # seconds
_LEASE: Final = 12.0  # seconds
_BEAT: Final = 3.0  # seconds between two heartbeats
_SHORTEST_LEASE: Final = 2.0  # seconds; a heartbeat may be late
_LAST: Final = 60.0  # seconds to end in, after the time to drain
_LOOK: Final = 0.05  # seconds between two looks whether it is ready


@command(
    "worker",
    exit_codes="0 it was asked to stop, 1 it counted as dead, 2 it did not start, 130 or 143\n"
    "it was ended by a second signal, 143 as well if it did not end in time",
)
@click.argument(
    "targets",
    type=TARGET,
    metavar="MODULE[:FUNCTION]...",
    nargs=-1,
    required=True,
    help="a module or a .py file, and a name in it for only that function, or a Runtime",
)
@click.option(
    "--store",
    "stores",
    metavar="URL",
    multiple=True,
    help=f"a journal that workers share, postgresql://USER@HOST/DATABASE; by default"
    f" ${STORE_VARIABLE}; may be repeated",
)
@click.option("--engine", metavar="NAME", help=ENGINE_HELP)
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help=f"a queue to serve; {DEFAULT_QUEUE!r} by default; may be repeated",
)
@click.option(
    "--slots",
    metavar="N",
    type=int,
    help="how many runs of a store at once; those that only wait do not count;"
    f" {_SLOTS} by default",
)
@click.option(
    "--drain",
    metavar="SECONDS",
    type=read_seconds,
    default=_DRAIN,
    help="how long, after SIGTERM, requests and calls that must not be repeated may take to end;"
    f" {_DRAIN:g} by default",
)
@click.option(
    "--lease",
    metavar="SECONDS",
    type=read_seconds,
    help="after how long without a sign of life others take over what it runs;"
    f" {_LEASE:g} by default",
)
@click.option(
    "--health",
    metavar="[HOST:]PORT",
    help="serve /ready, /alive and /metrics there; on this machine only unless HOST is given",
)
@click.option("--name", metavar="NAME", help="for people; by default the host and the process id")
@click.option("--model", metavar="NAME", help=MODEL_HELP)
@runtime_options
def worker(  # noqa: PLR0913 - options, each passed by name
    targets: tuple[str, ...],
    *,
    stores: tuple[str, ...],
    engine: str | None,
    queues: tuple[str, ...],
    slots: int | None,
    drain: float,
    lease: float | None,
    health: str | None,
    name: str | None,
    model: str | None,
    **deciding: Any,
) -> int:
    """Run what 'treefold run --detach' and programs submit, until SIGTERM or Ctrl-C.

    example: treefold worker examples/cluster/weather.py --store postgresql://localhost/app

    Start as many as you like, on any machine that reaches the database. All public functions that
    a module did not import can be run. If a worker dies, the others take over what it ran: what
    was done is not done again.

    With several stores it runs what is submitted to each, and is ready when it is in all.

    A Runtime of a program, or a function that makes one, has a store, an engine and all else that
    decides about its runs: 'treefold worker app.py:runtime'. Its options are not given again.

    At SIGTERM it takes no more work, and gives up each run for other workers as soon as no request
    and no call that must not be repeated is under way. After --drain seconds the rest is given up
    all the same, and a minute later it is ended whatever it does. A second signal ends it at once;
    others take its runs over when its lease ends.

    A password is better kept out of the command line, which other users of the machine can see:
    set TREEFOLD_STORE, or write ~/.pgpass.
    """
    try:
        address = None if health is None else parse_address(health, allow_remote=True)
        decides = RuntimeOptions(**deciding)
        own = {
            "--store": stores,
            "--engine": engine,
            "--queue": queues,
            "--slots": slots is not None,
            "--lease": lease is not None,
            "--name": name,
            "--model": model,
        }
        runtime = decides.named_runtime(targets, own)
        if runtime is not None:
            placed = f"placed by the engine of {targets[0]}"
            return _run([_Served(runtime, placed)], drain, address)
        urls = [shared_journal(store) for store in dict.fromkeys(stores) or [None]]
        functions, models = load_functions(targets), load_model(model)
        settings = _settings(name, queues, slots, lease)
        served: list[_Served] = []
        try:
            for url in urls:
                chosen = choose_engine(engine, url)
                if len(urls) > 1 and chosen.is_given:
                    raise InvalidValueError(
                        f"--engine {engine} is one engine, which serves one store: start a worker"
                        " for each store"
                    )
                runtime = decides.make(
                    functions,
                    models,
                    new_runs=False,
                    store=url,
                    engine=chosen.engine,
                    worker=settings,
                )
                served.append(_Served(runtime, chosen.about))
            return _run(served, drain, address)
        finally:
            # Those of the first stores, if a later one cannot be opened.
            for one in served:
                one.runtime.close()
    except FencedError as error:
        _say(f"{error}; other workers run what it had, so start it again")
        return FAILED
    except TreefoldError as error:
        _say(str(error))
        return USAGE


def _settings(
    name: str | None, queues: tuple[str, ...], slots: int | None, lease: float | None
) -> WorkerSettings:
    slots = _SLOTS if slots is None else slots
    lease = _LEASE if lease is None else lease
    if not all(queues):
        raise InvalidValueError("--queue must be the name of a queue, got ''")
    if slots < 1:
        raise InvalidValueError(f"--slots must be at least 1, got {slots}")
    if lease < _SHORTEST_LEASE:
        raise InvalidValueError(f"--lease must be at least {_SHORTEST_LEASE:g} s, got {lease:g}")
    beat = min(_BEAT, lease / 4)
    return WorkerSettings(
        name=name, queues=queues or (DEFAULT_QUEUE,), slots=slots, lease=lease, beat=beat
    )


@dataclass(frozen=True, slots=True)
class _Served:
    """A runtime with a store that is served; *about* says who places its work."""

    runtime: Runtime
    about: str


def _run(served: Sequence[_Served], drain: float, address: tuple[str, int] | None) -> int:
    """Run a worker until it is asked to stop."""
    seconds = drain + _LAST
    text = f"treefold worker: it has not ended in {seconds:g} s, and is ended now"
    last_resort = LastResort(seconds, text)
    try:
        return asyncio.run(_Worker(served, drain, last_resort).run(address))
    finally:
        last_resort.close()


class _Worker:
    """Runs a worker until a signal, and reports its progress on stderr."""

    def __init__(self, served: Sequence[_Served], drain: float, last_resort: LastResort) -> None:
        self._served = served
        self._drain = drain
        self._url: str | None = None  # of the health checks
        self._stop = asyncio.Event()
        self._failures: list[TreefoldError] = []
        self._last_resort = last_resort

    async def run(self, address: tuple[str, int] | None) -> int:
        """Work until it is asked to stop; serve health checks at *address*."""
        loop = asyncio.get_running_loop()
        pulse = LoopPulse(loop)
        begin = self._last_resort.begin
        with self._serving(address, pulse), _calling_on_signals(begin, self._stop_by, loop):
            try:
                async with asyncio.TaskGroup() as group:
                    for one in self._served:
                        group.create_task(self._work(one))
            finally:
                pulse.stop()
        if self._failures:
            raise self._failures[0]
        _say("stopped")
        return DONE

    async def _work(self, served: _Served) -> None:
        """Run what is submitted to one store, until this worker stops."""
        try:
            async with served.runtime as runtime:
                self._announce(served, asyncio.get_running_loop())
                await runtime.work(drain=self._drain, stop=self._stop)
        except TreefoldError as error:
            # Raised when the others have given up what they run.
            self._failures.append(error)
        finally:
            # It is one process for all stores: what stops it in one of them stops it in all.
            self._last_resort.begin()
            self._stop.set()

    def _serving(
        self, address: tuple[str, int] | None, pulse: LoopPulse
    ) -> AbstractContextManager[object]:
        """Serve health checks, if there is an *address*."""
        if address is None:
            return nullcontext()
        health = Health([one.runtime for one in self._served], busy=pulse.seconds_since)
        probes = ProbeServer(*address, health.pages)
        self._url = probes.url
        return probes

    def _announce(self, served: _Served, loop: asyncio.AbstractEventLoop) -> None:
        """Say that it is ready, as soon as it is."""
        runtime = served.runtime
        settings = runtime.worker_settings
        phase = runtime.worker_status().phase
        if phase is WorkerPhase.Starting:
            loop.call_later(_LOOK, self._announce, served, loop)
        elif phase is WorkerPhase.Ready:
            store = runtime.store
            assert store is not None  # a runtime with an engine has one
            queues = ", ".join(sorted(settings.queues))
            known = len(runtime.invocable_functions)
            facts = [
                f"{known} function{'' if known == 1 else 's'}",
                f"queue{'' if len(settings.queues) == 1 else 's'} {queues}",
                f"{settings.slots} slot{'' if settings.slots == 1 else 's'}",
                served.about,
            ]
            if self._url is not None:
                facts.append(f"health at {self._url}")
            _say(f"{settings.known_as} is ready on {store.name}: {'; '.join(facts)}")

    def _stop_by(self, name: str) -> None:
        """Begin to stop, because of a signal of that *name*."""
        _say(
            f"{name}: it gives up what it runs, within {self._drain:g} s; another signal ends it"
            " at once"
        )
        self._stop.set()


@contextmanager
def _calling_on_signals(
    begin: Callable[[], None], call: Callable[[str], None], loop: asyncio.AbstractEventLoop
) -> Generator[None]:
    """Call *begin* at the first SIGTERM or SIGINT, and *call* on *loop*; the second ends all."""

    seen: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        # Here and not on the loop, which may be blocked. The default action would do for the
        # second signal, but not in a container, whose first process has none.
        if seen:
            os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
        seen.append(number)
        begin()
        loop.call_soon_threadsafe(call, signal.Signals(number).name)

    before = {one: signal.signal(one, handle) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _say(text: str) -> None:
    print(f"treefold worker: {printable(text)}", file=sys.stderr, flush=True)
