"""The slots that the task queues of one worker share; imports the SDK of Temporal."""

import asyncio
import threading
from collections import Counter
from contextlib import suppress

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)


def tuner(slots: int, *, shared: bool) -> WorkerTuner:
    """Return what gives a worker its slots; *shared* if it has several task queues."""
    # Nothing else than activities is polled for.
    unused = FixedSizeSlotSupplier(1)
    supplier = SharedSlots(slots) if shared else FixedSizeSlotSupplier(slots)
    return WorkerTuner.create_composite(
        workflow_supplier=unused,
        activity_supplier=supplier,
        local_activity_supplier=unused,
        nexus_supplier=unused,
    )


class _Permit(SlotPermit):
    """Allows one poll of a task queue, and to run what it returns."""

    def __init__(self, queue: str) -> None:
        self.queue = queue


class SharedSlots(CustomSlotSupplier):
    """Lets each task queue be polled by one request while a slot is free.

    A worker of Temporal has one task queue, and holds a slot while it polls. If the slots were
    divided, some would be idle; if they were taken while polling, an empty queue could have the
    last one. So polls take none, and if two return at once, one drive too many has arrived.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        # The SDK calls from threads of its own.
        self._lock = threading.Lock()
        self._polls: Counter[str] = Counter()
        self._used = 0
        self._changed = asyncio.Event()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while not (permit := self._try(ctx.task_queue)):
            await self._changed.wait()
        return permit

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        self._count(ctx.permit, polls=-1, used=1)

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        if ctx.slot_info is None:
            self._count(ctx.permit, polls=-1)
        else:
            self._count(ctx.permit, used=-1)

    def _try(self, queue: str) -> _Permit | None:
        with self._lock:
            if self._polls[queue] or self._used >= self._slots:
                self._changed.clear()
                return None
            self._polls[queue] += 1
            return _Permit(queue)

    def _count(self, permit: SlotPermit, *, polls: int = 0, used: int = 0) -> None:
        with self._lock:
            if isinstance(permit, _Permit):
                self._polls[permit.queue] += polls
            self._used += used
        # The SDK may give a slot back when the loop has ended.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._changed.set)
