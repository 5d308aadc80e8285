"""``Temporal``: places work by activities of a Temporal server."""

from typing import Any, Final

from treefold.core.work_engine import WorkEngine
from treefold.engines.server_engine import ServerEngine
from treefold.engines.timing import FIRST_DELAY, LONGEST_DELAY, Delays, DeliveryTiming

DEFAULT_TARGET: Final = "localhost:7233"
DEFAULT_PREFIX: Final = "treefold-"


class Temporal(ServerEngine):
    """Places work by activities of a Temporal server, with the package temporalio.

    Each drive that is queued or runs is an activity without a workflow, whose only argument is the
    id of the drive; each queue is a task queue. The server needs to support standalone activities.

    Priorities from 2 to -2 are distinct, and their order is approximate. The times of tickets are
    those of the clock of this machine.

    Args:
        target: host and port of the server.
        namespace: in which the activities are.
        task_queue_prefix: is put before the names of task queues and activities.
        tls: True, or a ``temporalio.service.TLSConfig``; None for what goes with the key.
        api_key: authenticates at the server; nothing that treefold writes contains it.
        beat: seconds between the heartbeats of a drive.
        lease: seconds after its last heartbeat until a drive is delivered to another worker.
        patience: seconds that the server may take to answer.
        first_delay: seconds until a drive is delivered again that could not be run; twice as many
            each time.
        longest_delay: how many at most.

    Example:
        >>> from treefold.engines import Temporal
        >>> engine = Temporal("temporal.internal:7233", namespace="agents")
    """

    def __init__(  # noqa: PLR0913 - where the server is, and how long what may take
        self,
        target: str = DEFAULT_TARGET,
        *,
        namespace: str = "default",
        task_queue_prefix: str = DEFAULT_PREFIX,
        tls: Any = None,
        api_key: str | None = None,
        beat: float = 2.0,
        lease: float = 6.0,
        patience: float = 10.0,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
    ) -> None:
        super().__init__("temporal")
        self._connection = {
            "target_host": target,
            "namespace": namespace,
            "tls": tls,
            "api_key": api_key,
        }
        self._prefix = task_queue_prefix
        self._timing = DeliveryTiming(beat=beat, lease=lease, patience=patience)
        self._delays = Delays(first_delay, longest_delay)

    def _make(self, journal: str) -> WorkEngine:
        from treefold.engines.activity_engine import ActivityEngine  # noqa: PLC0415 - needs the extra

        return ActivityEngine(
            self._connection,
            prefix=self._prefix,
            journal=journal,
            timing=self._timing,
            delays=self._delays,
        )
