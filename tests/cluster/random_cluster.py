"""A cluster to which faults happen: a PostgreSQL, and workers, each with a way of its own to it."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import warm_python
from cluster.leases import set_heartbeats
from cluster.random_program import VARIABLE, Setting
from command_results import environment
from postgres_server import PostgresServer, new_name, with_query
from tcp_proxy import Cut, TcpProxy

PATIENCE: Final = 60.0  # seconds
DRAIN: Final = 3.0  # seconds
_ENDING: Final = 50.0  # seconds
_NOTHING: Final = b"\0no request has these bytes\0"
_CUTS: Final = (Cut.BEFORE, Cut.HALF, Cut.AFTER, Cut.REPLY, Cut.SILENCE)
_HOUR: Final = 3600.0
_CLOCKS: Final = (0.0, 0.0, 0.0, _HOUR, -_HOUR, 5.0)  # seconds
_TESTS: Final = Path(__file__).parent.parent


@dataclass
class History:
    """What was done to the cluster, with the monotonic time of each."""

    began: float = field(default_factory=time.monotonic)
    lines: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    complaints: list[str] = field(default_factory=list[str])

    def note(self, text: str) -> None:
        self.lines.append((time.monotonic(), text))

    def complain(self, text: str) -> None:
        """Note what nobody expected."""
        self.note(text)
        self.complaints.append(text)


@dataclass
class Impairment:
    """A time in which a worker could not reach the store, or did not run."""

    worker: str
    begun: float
    ended: float | None = None


class Way:
    """A way to the store, which can be cut off."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.proxy = TcpProxy(server.port, spare=_NOTHING)
        parts = urlsplit(with_query(server.url(), schema=schema))
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.proxy.port}").geturl()


class Place:
    """Where a worker runs; when one has ended, another is started there."""

    def __init__(self, cluster: "RandomCluster", number: int) -> None:
        self.cluster = cluster
        self.name = f"w{number}"
        self.way = Way(cluster.server, cluster.schema)
        self.busy = threading.Lock()  # one fault at a time
        self.expected: set[int] = set()  # exit codes that the fault explains
        self._log = cluster.folder / f"{self.name}.log"
        self._clocks = random.Random(f"{cluster.seed} {self.name}")
        self._said = 0  # bytes in the log before the worker was started that runs now
        self._program: warm_python.Program | None = None

    def start(self) -> None:
        clock = self._clocks.choice(_CLOCKS)
        told = replace(self.cluster.setting(self.name, self.way.url), clock=clock)
        program = str(Path(__file__).parent / "random_program.py")
        words = ["worker", f"{program}:runtime", "-v", "--drain", f"{DRAIN:g}"]
        self.expected = set()
        self._said = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            self._program = warm_python.start(
                "-m",
                "treefold",
                *words,
                files=(nothing.fileno(), log.fileno(), log.fileno()),
                env=environment(**{VARIABLE: told.as_text()}),
                cwd=_TESTS,
            )
        wrong = f", whose clock is wrong by {clock:g} s" if clock else ""
        self.cluster.history.note(f"{self.name} started as {self._program.pid}{wrong}")

    @property
    def pid(self) -> int:
        assert self._program is not None
        return self._program.pid

    def has_ended(self) -> int | None:
        """Return the exit code of the worker, if it has ended."""
        assert self._program is not None
        return self._program.poll()

    def is_well(self) -> bool:
        """Whether its worker works, and no fault happens to it."""
        if self.busy.locked() or not self._log.exists():
            return False
        with self._log.open("rb") as log:
            log.seek(self._said)
            return b" is ready " in log.read()

    def send(self, number: signal.Signals) -> bool:
        """Send it a signal, if it has not ended; return whether it was."""
        if self.has_ended() is not None:
            return False
        # It is not the child of this process, so its id is gone as soon as it has ended.
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()

    def log(self) -> Sequence[str]:
        return self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else ()


class RandomCluster:
    """The cluster; use it in a ``with`` block.

    Args:
        told: what all workers are told, but for their names and ways.
        workers: how many there are.
    """

    def __init__(
        self, told: Callable[[str, str], Setting], folder: Path, workers: int, seed: int
    ) -> None:
        self.seed = seed
        self._told = told
        self.folder = folder
        self.history = History()
        self.impairments: list[Impairment] = []
        self.server = PostgresServer({"max_connections": "400"})
        self.schema = new_name("random")
        self.straight = with_query(self.server.url(), schema=self.schema)
        self._ways: list[Way] = []
        self._database = threading.Lock()  # one fault of it at a time
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(3 * workers + 4, "fault")
        self._faults: list[Any] = []
        self.server.start()
        self.places = [Place(self, number) for number in range(workers)]

    def setting(self, name: str, url: str) -> Setting:
        return self._told(name, url)

    def way(self) -> Way:
        """Return a way to the store for somebody who is no worker."""
        self._ways.append(Way(self.server, self.schema))
        return self._ways[-1]

    def __enter__(self) -> Self:
        try:
            for place in self.places:
                place.start()
        except BaseException:
            self.__exit__()
            raise
        self._threads.submit(self._keep_up)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        try:
            for place in self.places:
                place.kill()
        finally:
            self._threads.shutdown()
            self.close_ways()
            self.server.close()

    def close_ways(self) -> None:
        for way in (*self._ways, *(place.way for place in self.places)):
            way.proxy.close()

    def _keep_up(self) -> None:
        """Start a worker wherever one has ended."""
        while not self._stop.wait(0.05):
            for place in self.places:
                if place.busy.acquire(blocking=False):
                    try:
                        if (code := place.has_ended()) is not None:
                            self._ended(place, code)
                    except BaseException as error:
                        self.history.complain(f"{place.name} could not be started: {error!r}")
                        raise
                    finally:
                        place.busy.release()

    def _ended(self, place: Place, code: int) -> None:
        # A worker that counted as dead ends with 1, one that has not found its database with 2.
        text = f"{place.name} ({place.pid}) ended with {code}"
        if code in place.expected | {1, 2}:
            self.history.note(text)
        else:
            self.history.complain(f"{text}: {' | '.join(place.log()[-12:])}")
        if self._stop.wait(0.3):
            return
        place.start()

    # Faults

    def _kinds(self) -> dict[Callable[..., None], float]:
        """Return what may happen, with how likely it is."""
        return {
            self._kill: 5,
            self._freeze: 5,
            self._drain: 3,
            self._cut: 8,
            self._cut_all: 3,
            self._part: 4,
            self._cut_others: 5,
            self._part_others: 2,
            self._restart: 1,
            self._pause_database: 1,
            self._set_database_clock: 1,
        }

    def is_fit(self) -> bool:
        """Whether at least half of the workers work: a slow machine has fewer faults."""
        return 2 * sum(place.is_well() for place in self.places) >= len(self.places)

    def fault(self, source: random.Random, lease: float) -> None:
        """Begin a random fault, which ends by itself."""
        kinds = self._kinds()
        do = source.choices(list(kinds), list(kinds.values()))[0]
        place, seconds = source.choice(self.places), source.uniform(0.2, 2.0) * lease
        cut, way = source.choice(_CUTS), source.randrange(len(self._ways) or 1)
        self._faults = [one for one in self._faults if not one.done()]
        self._faults.append(self._threads.submit(self._guarded, do, place, seconds, cut, way))

    def _guarded(self, do: Any, place: Place, seconds: float, cut: Cut, way: int) -> None:
        try:
            do(place, seconds, cut, way)
        except BaseException as error:
            self.history.complain(f"a fault failed: {error!r}")
            raise

    def heal(self) -> None:
        """Wait until all faults are over."""
        end = time.monotonic() + PATIENCE
        for fault in self._faults:
            fault.result(max(0.1, end - time.monotonic()))
        self.history.note("no more faults")

    def _impaired(self, place: Place, seconds: float) -> None:
        found = Impairment(place.name, time.monotonic())
        self.impairments.append(found)
        self._stop.wait(seconds)
        found.ended = time.monotonic()

    def _kill(self, place: Place, seconds: float, *_: Any) -> None:
        with place.busy:
            place.expected.add(-signal.SIGKILL)
            if place.send(signal.SIGKILL):
                self.history.note(f"{place.name} ({place.pid}) killed")

    def _freeze(self, place: Place, seconds: float, *_: Any) -> None:
        with place.busy:
            if place.send(signal.SIGSTOP):
                self.history.note(f"{place.name} ({place.pid}) stopped for {seconds:.2f} s")
                self._impaired(place, seconds)
                place.send(signal.SIGCONT)
                self.history.note(f"{place.name} ({place.pid}) goes on")

    def _drain(self, place: Place, *_: Any) -> None:
        with place.busy:
            # The latter if it had hardly begun.
            place.expected |= {0, -signal.SIGTERM}
            if place.send(signal.SIGTERM):
                self.history.note(f"{place.name} ({place.pid}) drains")
                # Before it ends itself.
                end = time.monotonic() + DRAIN + _ENDING
                while place.has_ended() is None:
                    if time.monotonic() > end:
                        before = len(place.log())
                        place.send(signal.SIGUSR1)
                        time.sleep(1.0)
                        where = "\n".join(place.log()[before:])
                        self.history.note(f"{place.name} ({place.pid}) drains for ever")
                        self.history.complaints.append(f"{place.name} drains for ever\n{where}")
                        place.expected.add(-signal.SIGKILL)
                        place.kill()
                    time.sleep(0.02)

    def _cut(self, place: Place, _seconds: float, cut: Cut, _way: int) -> None:
        self.history.note(f"{place.name}: the next request is cut: {cut.name}")
        place.way.proxy.arm(cut)

    def _cut_all(self, place: Place, *_: Any) -> None:
        self.history.note(f"{place.name}: all connections are cut")
        place.way.proxy.cut_all()

    def _part(self, place: Place, seconds: float, *_: Any) -> None:
        with place.busy:
            self.history.note(f"{place.name}: cut off for {seconds:.2f} s")
            place.way.proxy.hold()
            self._impaired(place, seconds)
            place.way.proxy.release()
            self.history.note(f"{place.name}: not cut off any more")

    def _cut_others(self, _place: Place, seconds: float, cut: Cut, way: int) -> None:
        if not self._ways:
            return
        proxy = self._ways[way].proxy
        self.history.note(f"way {way}: the next request is cut: {cut.name}")
        proxy.arm(cut)

    def _part_others(self, _place: Place, seconds: float, cut: Cut, way: int) -> None:
        if not self._ways:
            return
        self.history.note(f"way {way}: cut off for {seconds:.2f} s")
        self._ways[way].proxy.hold()
        self._stop.wait(seconds)
        if cut in {Cut.BEFORE, Cut.REPLY}:
            self._ways[way].proxy.cut_all()
        self._ways[way].proxy.release()
        self.history.note(f"way {way}: not cut off any more")

    def _restart(self, _place: Place, seconds: float, cut: Cut, _way: int) -> None:
        with self._database:
            self.history.note("the database is restarted")
            if cut in {Cut.HALF, Cut.SILENCE}:
                self.server.kill()
            else:
                self.server.stop()
            if cut is Cut.AFTER:
                self._away(seconds)
            self.server.start()
            self.history.note("the database is back")

    def _away(self, seconds: float) -> None:
        for place in self.places:
            self.impairments.append(
                Impairment(place.name, time.monotonic(), time.monotonic() + seconds)
            )
        self._stop.wait(seconds)

    def _pause_database(self, _place: Place, seconds: float, *_: Any) -> None:
        with self._database:
            self.history.note(f"the database is stopped for {seconds:.2f} s")
            stopped = [self.server.pid, *_children(self.server.pid)]
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            self._away(seconds)
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.history.note("the database goes on")

    def _set_database_clock(self, _place: Place, _seconds: float, cut: Cut, _way: int) -> None:
        with self._database:
            jump = _HOUR if cut in {Cut.BEFORE, Cut.HALF} else -_HOUR
            self.history.note(f"the clock of the database is set by {jump:g} s")
            set_heartbeats(self.straight, jump)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = stat.read_text()
            if int(text.rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
