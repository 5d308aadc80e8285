"""The engine behind ``Temporal``: standalone activities, one for each drive; imports the SDK."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    ActivityExecutionDescription,
    ActivityExecutionStatus,
    Client,
    PendingActivityState,
)
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityAlreadyStartedError
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError, RPCStatusCode

from treefold.core.errors import EngineError
from treefold.core.work_engine import Depth, Stop, Take, Ticket
from treefold.engines.activity_worker import ACTIVITY, FOREVER, ActivityWorker
from treefold.engines.timing import Delays, DeliveryTiming

T = TypeVar("T")

# A drive that runs may be queued again, under another id; so often at most.
_MOST_IDS: Final = 8
# After a worker has died, the drive is delivered at once: its activity says itself when it waits.
_RETRY: Final = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0)
_MIDDLE_PRIORITY: Final = 3  # of 1 to 5, where 1 comes first


class ActivityEngine:
    """Implements the contract of an engine with standalone activities.

    Args:
        connection: arguments of ``Client.connect``.
        prefix: of task queues and of the ids of activities.
        journal: each journal has queues and nodes of its own.
    """

    def __init__(
        self,
        connection: Mapping[str, Any],
        *,
        prefix: str,
        journal: str,
        timing: DeliveryTiming,
        delays: Delays,
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        if journal:
            self._prefix += f"{hashlib.sha256(journal.encode()).hexdigest()[:8]}-"
        self._timing = timing
        self._delays = delays
        self._name = f"Temporal at {connection['target_host']}"
        self._connected: Client | None = None

    async def open(self, journal: str = "") -> None:
        try:
            async with asyncio.timeout(self._timing.patience):
                self._connected = await Client.connect(
                    **self._connection, runtime=_runtime(os.getpid())
                )
        except (TimeoutError, RuntimeError) as error:
            raise self._unreachable(str(error)) from error
        # Servers that are too old do not know this.
        await self._ask(self._client.count_activities(f"TaskQueue = '{self._prefix}'"))

    async def close(self) -> None:
        # The SDK closes a connection when nothing refers to it.
        self._connected = None

    @property
    def _client(self) -> Client:
        if self._connected is None:
            raise EngineError(self._name, "the engine was closed")
        return self._connected

    async def submit(self, ticket: Ticket) -> None:
        for id in self._ids(ticket.node):
            if await self._start(ticket, id):
                return
            found = await self._describe(id)
            if found is not None and _is_queued(found):
                if not _is_due_before(found, ticket):
                    await self._terminate(id)
                    await self._start(ticket, id)
                return

    async def withdraw(self, node: int) -> None:
        for id in self._ids(node):
            found = await self._describe(id)
            if found is None:
                return
            if _is_queued(found):
                await self._terminate(id)

    async def work(self, take: Take, *, queues: Collection[str], slots: int, stop: Stop) -> None:
        worker = ActivityWorker(
            self._client, take, slots=slots, stop=stop, beat=self._timing.beat, delays=self._delays
        )
        await worker.run([self._prefix + queue for queue in queues])

    async def depth(self, queues: Collection[str]) -> Depth:
        queued = running = 0
        now = datetime.now(UTC).isoformat()
        for queue in queues:
            name = self._prefix + queue
            open = f"TaskQueue = '{_quoted(name)}' AND ExecutionStatus = 'Running'"
            due = await self._count(f"{open} AND ExecutionTime <= '{now}'")
            delayed = await self._count(f"{open} AND ExecutionTime > '{now}'")
            waiting = min(await self._backlog(name), due)
            queued += waiting + delayed
            running += due - waiting
        return Depth(queued=queued, running=running)

    def _ids(self, node: int) -> list[str]:
        return [
            f"{self._prefix}{node}",
            *(f"{self._prefix}{node}+{n}" for n in range(1, _MOST_IDS)),
        ]

    async def _start(self, ticket: Ticket, id: str) -> bool:
        """Start an activity; return False if there is one with this id."""
        delay = max(0.0, (ticket.not_before or 0.0) - time.time())
        key = min(max(_MIDDLE_PRIORITY - ticket.priority, 1), 2 * _MIDDLE_PRIORITY - 1)
        try:
            await self._ask(
                self._client.start_activity(
                    ACTIVITY,
                    ticket.node,
                    id=id,
                    task_queue=self._prefix + ticket.queue,
                    start_to_close_timeout=FOREVER,
                    heartbeat_timeout=timedelta(seconds=self._timing.lease),
                    retry_policy=_RETRY,
                    priority=Priority(priority_key=key),
                    start_delay=timedelta(seconds=delay) if delay else None,
                )
            )
        except ActivityAlreadyStartedError:
            return False
        return True

    async def _describe(self, id: str) -> ActivityExecutionDescription | None:
        try:
            return await self._ask(self._client.get_activity_handle(id).describe())
        except LookupError:
            return None

    async def _terminate(self, id: str) -> None:
        with suppress(LookupError):
            await self._ask(self._client.get_activity_handle(id).terminate(reason="withdrawn"))

    async def _count(self, query: str) -> int:
        return (await self._ask(self._client.count_activities(query))).count

    async def _backlog(self, name: str) -> int:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=name),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
            report_stats=True,
        )
        found = await self._ask(self._client.workflow_service.describe_task_queue(request))
        return found.stats.approximate_backlog_count

    async def _ask(self, answer: Awaitable[T]) -> T:
        """Return an answer of the server.

        Raises:
            LookupError: there is no such activity.
            EngineError: the server cannot be reached, or used.
        """
        try:
            async with asyncio.timeout(self._timing.patience):
                return await answer
        except TimeoutError as error:
            raise self._unreachable("") from error
        except RPCError as error:
            raise self._error(error) from error

    def _error(self, error: RPCError) -> Exception:
        namespace = self._connection["namespace"]
        match error.status:
            case RPCStatusCode.NOT_FOUND if "activity" in error.message:
                return LookupError(error.message)
            case RPCStatusCode.NOT_FOUND:
                text = f"it has no namespace {namespace!r}: create it, or name another"
            case RPCStatusCode.UNIMPLEMENTED:
                text = (
                    "it has no standalone activities: update the server, or allow them there "
                    "(activity.enableStandalone)"
                )
            case RPCStatusCode.UNAUTHENTICATED | RPCStatusCode.PERMISSION_DENIED:
                text = f"it denies access to the namespace {namespace!r}: check api_key and tls"
            case _:
                return self._unreachable(error.message)
        return EngineError(self._name, text)

    def _unreachable(self, reason: str) -> EngineError:
        reason = reason or f"no answer in {self._timing.patience:g} s"
        text = f"it cannot be reached ({reason}): check the address, and whether it runs"
        return EngineError(self._name, text)


@cache
def _runtime(process: int) -> Runtime:
    """Return the threads of the SDK; a process that was forked needs its own."""
    # The SDK would log to the standard output, and tell the server about this machine.
    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"))
    filter = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(
        telemetry=TelemetryConfig(logging=LoggingConfig(filter=filter, forwarding=forwarding)),
        disable_environment_info=True,
    )


def _is_queued(found: ActivityExecutionDescription) -> bool:
    return (
        found.status == ActivityExecutionStatus.RUNNING
        and found.run_state == PendingActivityState.SCHEDULED
    )


def _is_due_before(found: ActivityExecutionDescription, ticket: Ticket) -> bool:
    """Whether a queued activity is delivered no later than *ticket* wants, or waits on purpose."""
    due = found.execution_time
    return found.attempt > 1 or due is None or due.timestamp() <= (ticket.not_before or time.time())


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace("'", "\\'")
