"""Health checks and metrics of ``treefold worker``: ``/ready``, ``/alive`` and ``/metrics``."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from treefold.core.cluster import Owed
from treefold.core.errors import StoreError
from treefold.core.store import Store
from treefold.http_server.probes import Pages, ProbePage
from treefold.runtime.durable.worker_settings import WorkerPhase, WorkerSettings, WorkerStatus
from treefold.version import __version__

LONGEST_BLOCK: Final = 60.0  # seconds that the event loop may be busy
LONGEST_SILENCE: Final = 10  # leases without an answer of the store; a database may be restarted
_PULSE: Final = 1.0  # seconds
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class LoopPulse:
    """Notes when an event loop last ran; made on that loop, read from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._note()

    def _note(self) -> None:
        self._at = time.monotonic()
        self._timer = self._loop.call_later(_PULSE, self._note)

    def seconds_since(self) -> float:
        """Return for how long the loop has been busy; up to a second if it is not."""
        return time.monotonic() - self._at

    def stop(self) -> None:
        """Note nothing more."""
        self._timer.cancel()


class Working(Protocol):
    """What works for one store; a ``Runtime``."""

    @property
    def store(self) -> Store | None: ...
    @property
    def worker_settings(self) -> WorkerSettings: ...
    def worker_status(self) -> WorkerStatus: ...


class Health:
    """The pages about one worker, each made in a thread on request.

    Args:
        parts: what it has for each of its stores.
        busy: returns for how many seconds its event loop has not run.
    """

    def __init__(self, parts: Sequence[Working], *, busy: Callable[[], float]) -> None:
        self._parts = [_Part(part, named=len(parts) > 1) for part in parts]
        self._busy = busy

    @property
    def pages(self) -> Pages:
        """The pages, by path."""
        return {"/ready": self.ready, "/alive": self.alive, "/metrics": self.metrics}

    def ready(self) -> ProbePage:
        """Return whether the worker takes work, from all of its stores."""
        for part in self._parts:
            status = part.working.worker_status()
            if status.phase is not WorkerPhase.Ready:
                return _unavailable(f"{part.it} is {status.phase.value}")
            if not status.is_reachable:
                return _unavailable(f"{part.store} has not answered for {status.beaten:.0f} s")
        return ProbePage("ready\n")

    def alive(self) -> ProbePage:
        """Return whether the process does its work, or should be started again."""
        busy = self._busy()
        for part in self._parts:
            status, lease = part.working.worker_status(), part.working.worker_settings.lease
            if status.phase is WorkerPhase.Dead:
                return _unavailable(f"{part.it} counted as dead, and others run its trees")
            if status.beaten > LONGEST_SILENCE * lease:
                return _unavailable(f"{part.store} has not answered for {status.beaten:.0f} s")
        if busy > LONGEST_BLOCK:
            return _unavailable(f"its event loop has been blocked for {busy:.0f} s")
        return ProbePage("alive\n")

    def metrics(self) -> ProbePage:
        """Return all numbers, in the text format of Prometheus."""
        metrics = _Metrics()
        metrics.add("info", "gauge", "The version of treefold.", 1, version=__version__)
        what = "Seconds since the event loop last ran; up to 1 if nothing blocks it."
        metrics.add("event_loop_age_seconds", "gauge", what, self._busy())
        for part in self._parts:
            part.add_to(metrics)
        return ProbePage(metrics.text(), kind=_METRICS)


class _Part:
    """What a worker does in one of its stores."""

    def __init__(self, working: Working, *, named: bool) -> None:
        self.working = working
        store = working.store
        assert store is not None
        assert store.cluster is not None  # a runtime with an engine has no other
        self._drives = store.cluster.drives
        self._labels = {"store": store.name} if named else {}
        self.store = store.name if named else "the store"
        self.it = f"in {store.name} it" if named else "it"

    def add_to(self, metrics: "_Metrics") -> None:
        """Add the samples of this store."""
        status, add = self.working.worker_status(), partial(metrics.add, **self._labels)
        shared = self._shared(status)
        what = "Whether the store answers this worker."
        add("up", "gauge", what, int(shared is not None))
        is_draining = status.phase is WorkerPhase.Draining
        add("draining", "gauge", "Whether it gives its trees up.", int(is_draining))
        add("slots", "gauge", "Trees that it may run at once.", status.slots)
        add("running", "gauge", "Trees that it runs.", status.running)
        add("waiting", "gauge", "Trees that it has, and that only wait.", status.waiting)
        what = "How often entries of a tree were written."
        add("appends_total", "counter", what, status.appends)
        add("entries_total", "counter", "Entries that were written.", status.entries)
        what = "Trees that it ran when another worker took them over."
        add("lost_total", "counter", what, status.lost)
        what = "Seconds since the store answered a heartbeat."
        add("heartbeat_age_seconds", "gauge", what, status.beaten)
        if shared is None:
            return
        owed, doubts = shared
        what = "Trees and calls that wait for a worker, of all workers together."
        oldest = "Seconds for which the first of them has waited."
        for queue, depth in owed.items():
            add("owed", "gauge", what, depth.count, queue=queue)
            add("oldest_owed_seconds", "gauge", oldest, depth.oldest, queue=queue)
        what = "Calls that are in doubt and wait for a person, of all workers together."
        add("doubts", "gauge", what, doubts)

    def _shared(self, status: WorkerStatus) -> tuple[dict[str, Owed], int] | None:
        """Return how much is owed in each queue, and the doubts; None if the store is away."""
        if not status.is_reachable:
            return None
        try:
            queues = sorted(self.working.worker_settings.queues)
            return {queue: self._drives.depth([queue]) for queue in queues}, self._drives.doubts()
        except StoreError:
            return None


def _unavailable(why: str) -> ProbePage:
    return ProbePage(f"{why}\n", 503)


class _Metrics:
    """Samples in the text format of Prometheus, whose names begin with ``treefold_``."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}  # by name, as those of one name follow each other

    def add(self, name: str, kind: str, about: str, value: float, **labels: str) -> None:
        """Add one sample."""
        described = [f"# HELP treefold_{name} {about}", f"# TYPE treefold_{name} {kind}"]
        lines = self._lines.setdefault(name, described)
        written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        lines.append(f"treefold_{name}{f'{{{written}}}' if written else ''} {shown}")

    def text(self) -> str:
        return "\n".join([line for lines in self._lines.values() for line in lines] + [""])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
