"""Health checks and metrics of ``treefold worker``: ``/ready``, ``/alive`` and ``/metrics``."""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final

from treefold.core.errors import StoreError
from treefold.core.shared_store import Owed, SharedStore
from treefold.http_server.probes import Pages, ProbePage
from treefold.runtime.durable.worker_settings import WorkerPhase, WorkerStatus
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


class Health:
    """The pages about one worker, each made in a thread on request.

    Args:
        store: that of the worker.
        queues: the queues that it serves.
        lease: of the worker, in seconds.
        status: returns how it does.
        busy: returns for how many seconds its event loop has not run.
    """

    def __init__(
        self,
        store: SharedStore,
        queues: Collection[str],
        lease: float,
        *,
        status: Callable[[], WorkerStatus],
        busy: Callable[[], float],
    ) -> None:
        self._store = store
        self._queues = sorted(queues)
        self._lease = lease
        self._status = status
        self._busy = busy

    @property
    def pages(self) -> Pages:
        """The pages, by path."""
        return {"/ready": self.ready, "/alive": self.alive, "/metrics": self.metrics}

    def ready(self) -> ProbePage:
        """Return whether the worker takes work."""
        status = self._status()
        if status.phase is not WorkerPhase.Ready:
            return _unavailable(f"it is {status.phase.value}")
        if not status.is_reachable:
            return _unavailable(f"the store has not answered for {status.beaten:.0f} s")
        return ProbePage("ready\n")

    def alive(self) -> ProbePage:
        """Return whether the process does its work, or should be started again."""
        status, busy = self._status(), self._busy()
        if status.phase is WorkerPhase.Dead:
            return _unavailable("it counted as dead, and others run its trees")
        if busy > LONGEST_BLOCK:
            return _unavailable(f"its event loop has been blocked for {busy:.0f} s")
        if status.beaten > LONGEST_SILENCE * self._lease:
            return _unavailable(f"the store has not answered for {status.beaten:.0f} s")
        return ProbePage("alive\n")

    def metrics(self) -> ProbePage:
        """Return all numbers, in the text format of Prometheus."""
        status, metrics = self._status(), _Metrics()
        owed, is_draining = self._owed(status), status.phase is WorkerPhase.Draining
        what = "Whether the store answers this worker."
        metrics.add("up", "gauge", what, int(bool(owed)))
        metrics.add("info", "gauge", "The version of treefold.", 1, version=__version__)
        metrics.add("draining", "gauge", "Whether it gives its trees up.", int(is_draining))
        metrics.add("slots", "gauge", "Trees that it may run at once.", status.slots)
        metrics.add("running", "gauge", "Trees that it runs.", status.running)
        metrics.add("waiting", "gauge", "Trees that it has, and that only wait.", status.waiting)
        for queue, depth in owed.items():
            what = "Trees and calls that wait for a worker, of all workers together."
            metrics.add("owed", "gauge", what, depth.count, queue=queue)
        for queue, depth in owed.items():
            what = "Seconds for which the first of them has waited."
            metrics.add("oldest_owed_seconds", "gauge", what, depth.oldest, queue=queue)
        what = "How often entries of a tree were written."
        metrics.add("appends_total", "counter", what, status.appends)
        metrics.add("entries_total", "counter", "Entries that were written.", status.entries)
        what = "How often the store refused entries: another worker has the tree."
        metrics.add("fenced_total", "counter", what, status.fenced)
        what = "Seconds since the store answered a heartbeat."
        metrics.add("heartbeat_age_seconds", "gauge", what, status.beaten)
        what = "Seconds since the event loop last ran; up to 1 if nothing blocks it."
        metrics.add("event_loop_age_seconds", "gauge", what, self._busy())
        return ProbePage(metrics.text(), kind=_METRICS)

    def _owed(self, status: WorkerStatus) -> dict[str, Owed]:
        """Return how much is owed in each queue; nothing if the store does not answer."""
        if not status.is_reachable:
            return {}
        try:
            return {queue: self._store.depth([queue]) for queue in self._queues}
        except StoreError:
            return {}


def _unavailable(why: str) -> ProbePage:
    return ProbePage(f"{why}\n", 503)


class _Metrics:
    """Samples in the text format of Prometheus, whose names begin with ``treefold_``."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._described: set[str] = set()

    def add(self, name: str, kind: str, about: str, value: float, **labels: str) -> None:
        """Add one sample; those of one name follow each other."""
        if name not in self._described:
            self._described.add(name)
            self._lines += [f"# HELP treefold_{name} {about}", f"# TYPE treefold_{name} {kind}"]
        written = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        self._lines.append(f"treefold_{name}{f'{{{written}}}' if written else ''} {shown}")

    def text(self) -> str:
        return "\n".join([*self._lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
