"""Limits, rates and budgets that all workers of a shared store keep together."""

import asyncio
import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from treefold.core.cluster import Estimate, Overdrawn, Ownership, StoredAccount
from treefold.core.errors import ClosedError, FencedError, StoreDamagedError, StoreError
from treefold.core.moments import steady
from treefold.core.rate import Rate
from treefold.runtime.calls.budgets import Account, Refused, Spent, refusal
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.pulse import Pulse
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.trees.tree import Tree

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON: Final = 0.02  # seconds; a process that returns a slot lets others try first
_LATER: Final = 0.2  # seconds between two tries when everything stays taken
_SLOWER: Final = 1.3
_RETRY: Final = 0.5  # seconds until a store that cannot be reached is tried again
_PATIENCE: Final = 2.0  # seconds that closing waits for the thread
_MOST_FAILURES: Final = 3  # in one round; then the store most likely cannot be reached


class _Job:
    """Something to ask the store.

    Args:
        work: asks it; what it raises says whether another try may succeed.
        order: of the jobs with the same one, none is done before those that were posted earlier.

    Attributes:
        tries: how many there were.
        due: when it is to be done, in monotonic time.
    """

    def __init__(self, work: Callable[[], None], order: Hashable) -> None:
        self.work = work
        self.order = order
        self.tries = 0
        self.due = 0.0


class ClusterAllowances:
    """Asks the store for slots, rates and reservations, in order, in a thread of its own.

    If the store cannot be reached, everything waits until it can. Any other error is that of the
    one who asked, and the others go on; they do as well if the store always fails for one of them.

    The store knows how many slots this process has, and counts them as long as the process is alive
    by its lease. A process that was stopped for longer takes slots anew for what it has not sent.
    What it has sent goes on: the provider has most likely answered meanwhile. It counts again as
    soon as the process lives again; and if another worker has its tree, it is cancelled with that.

    Args:
        pulse: whether this process still counts as alive.
    """

    def __init__(self, store: str, source: SharedTrees) -> None:
        self._store = store  # where it is, for messages
        self._limits = source.cluster.limits
        self._pulse = source.pulse
        self._changed = threading.Condition()  # guards everything below
        self._jobs: deque[_Job] = deque()
        self._waiting: dict[_SlotRequest, None] = {}  # in order
        self._slots: Counter[str] = Counter()  # that this process has, of each limit
        self._untold: set[str] = set()  # the limits of which the store may count others
        self._next_try = 0.0
        self._delay = _SOON
        self._is_failing = False
        self._thread: threading.Thread | None = None
        self._closed = False

    # Slots

    async def take_slots(
        self, limits: Mapping[str, int], on_wait: Callable[[], None]
    ) -> "ClusterSlots":
        # Slots that are taken earlier are not kept (``ClusterSlots.are_kept``).
        await self._pulse.wait()
        request = _SlotRequest(limits, on_wait)
        with self._changed:
            # A new request must not be quicker than those of other processes that wait.
            if not any(one.limits == limits for one in self._waiting):
                self._next_try = 0.0
            self._waiting[request] = None
            self._wake()
        try:
            return await request.future
        except asyncio.CancelledError:
            with self._changed:
                self._waiting.pop(request, None)
                if request.slots is not None:
                    # They were taken just before the cancellation.
                    request.slots.give_back()
            raise

    def _take(self, limits: Mapping[str, int]) -> "ClusterSlots | None":
        with self._changed:
            wanted = {name: self._slots[name] + 1 for name in limits}
        asked = steady()
        try:
            if not self._limits.set_slots(wanted, limits=limits):
                return None
        except StoreError:
            # The store may have counted them, or may do so yet.
            self._correct(limits)
            raise
        with self._changed:
            self._slots.update(limits.keys())
        return ClusterSlots(partial(self._give_back, limits), self._pulse, asked)

    def _give_back(self, limits: Iterable[str]) -> None:
        with self._changed:
            self._slots.subtract(list(limits))
            self._correct(limits)
            self._delay = _SOON
            self._next_try = time.monotonic() + self._jitter()

    def _correct(self, limits: Iterable[str]) -> None:
        """Have the store told how many slots of these limits this process has."""
        with self._changed:
            self._untold.update(limits)
            self._jobs.append(_Job(self._tell, None))
            self._changed.notify_all()

    def _tell(self) -> None:
        with self._changed:
            slots = {name: self._slots[name] for name in self._untold}
            self._untold.clear()
        if not slots:
            return  # it was told with others
        try:
            self._limits.set_slots(slots)
        except StoreError:
            with self._changed:
                self._untold.update(slots)
            raise

    def _jitter(self) -> float:
        return self._delay * random.uniform(0.5, 1.5)

    def _serve(self) -> None:
        """Try to take slots for those who wait, in order."""
        with self._changed:
            if not self._waiting or time.monotonic() < self._next_try:
                return
            waiting = list(self._waiting)
        full: list[Mapping[str, int]] = []
        was_taken = False
        for request in waiting:
            if request.limits in full:
                request.note_wait()
                continue
            try:
                slots = self._take(request.limits)
            except Exception as error:
                if _may_pass(error):
                    with self._changed:
                        self._next_try = time.monotonic() + _RETRY
                    raise
                with self._changed:
                    self._waiting.pop(request, None)
                request.fail(error)
                continue
            if slots is None:
                full.append(request.limits)
                request.note_wait()
                continue
            was_taken = True
            with self._changed:
                if self._waiting.pop(request, _GONE) is not _GONE:
                    request.slots = slots
                    if request.give(slots):
                        continue
            slots.give_back()  # it was cancelled, or its loop has closed
        with self._changed:
            self._delay = _SOON if was_taken else min(_LATER, self._delay * _SLOWER)
            self._next_try = time.monotonic() + self._jitter()

    # Rates

    async def take_rates(self, rates: Mapping[str, Rate], tokens: int) -> float:
        return await self.call(partial(self._limits.take_rates, rates, tokens))

    def charge_rates(self, rates: Collection[str], more: int) -> None:
        self._post(partial(self._limits.charge_rates, rates, more))

    # Budgets

    async def set_aside(
        self, tree: Tree, accounts: Sequence[Account], estimate: Estimate, unchecked: Set[Account]
    ) -> Callable[[int, int, Decimal], None] | Refused:
        id, by_name = uuid4(), {str(account.stored_as): account for account in accounts}
        stored = [_stored(one, tree.id, checked=one not in unchecked) for one in by_name.values()]
        ask = partial(
            self._limits.set_aside, stored, id=id, estimate=estimate, ownership=_ownership(tree)
        )
        charge = partial(self._charge, id)
        try:
            refused = await self.call(ask, order=id)
        except asyncio.CancelledError:
            # It may have been reserved; jobs are done in order.
            charge(0, 0, Decimal(0))
            raise
        if refused is None:
            return charge
        return _refused(by_name[refused.name], refused, estimate)

    def _charge(self, id: UUID, calls: int, tokens: int, usd: Decimal) -> None:
        charge = partial(self._limits.charge, id, calls=calls, tokens=tokens, usd=usd)
        self._post(charge, order=id)

    # The thread

    async def call(self, ask: Callable[[], T], *, order: Hashable = None) -> T:
        """Return the result of *ask*, which is called in the thread, or raise its error.

        It is called again as long as the store cannot be reached, and after all with the same
        *order* that were posted before.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                settle = partial(_resolve, future, ask())
            except Exception as error:
                if _may_pass(error):
                    raise
                settle = partial(_reject, future, error)
            with suppress(RuntimeError):  # the loop has closed, and nothing awaits this
                loop.call_soon_threadsafe(settle)

        self._post(job, order=order)
        return await future

    def _post(self, work: Callable[[], None], *, order: Hashable = None) -> None:
        with self._changed:
            self._jobs.append(_Job(work, order))
            self._wake()

    def _wake(self) -> None:
        if self._closed:
            raise ClosedError("this runtime was closed")
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="treefold allowances", daemon=True
            )
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while self._await_work():
            failure: StoreError | None = None
            # If some jobs fail, there may be slots all the same.
            for work in (self._do_jobs, self._serve):
                try:
                    work()
                except ClosedError:
                    return
                except StoreError as error:
                    failure = error
            if failure is not None:
                if not self._is_failing:
                    log.warning("requests to models wait: %s", failure)
                self._is_failing = True
                if self._closed:
                    return
            elif self._is_failing and not any(job.tries for job in tuple(self._jobs)):
                log.warning("%s can be reached again", self._store)
                self._is_failing = False

    def _await_work(self) -> bool:
        """Wait for a job, or until it is time to try for slots again; False when all is done."""
        with self._changed:
            while True:
                first = self._first_jobs()
                if self._closed and all(job.tries for job in first):
                    return False
                due = [job.due for job in first]
                if self._waiting and not self._closed:
                    due.append(self._next_try)
                left = min(due) - time.monotonic() if due else None
                if left is not None and left <= 0:
                    return True
                self._changed.wait(left)

    def _do_jobs(self) -> None:
        """Do the jobs that are due, those that have failed before last.

        Raises:
            StoreError: some are to be tried again.
        """
        failures: list[StoreError] = []
        while (job := self._next_job()) is not None:
            try:
                job.work()
            except ClosedError:
                raise
            except Exception as error:
                if isinstance(error, StoreError) and _may_pass(error):
                    job.tries += 1
                    job.due = time.monotonic() + _RETRY
                    failures.append(error)
                    if len(failures) == _MOST_FAILURES:
                        break
                    continue
                # No call awaits this job, and retrying it would keep all others waiting.
                log.exception("what a request took cannot be charged, or given back")
            self._jobs.remove(job)
        if failures:
            raise failures[0]

    def _next_job(self) -> _Job | None:
        """Return the job to do now: the first, but for those that wait for another try."""
        now = time.monotonic()
        ready = [job for job in self._first_jobs() if job.due <= now]
        return min(ready, key=lambda job: job.tries, default=None)

    def _first_jobs(self) -> list[_Job]:
        """Return the first job of each order, as far as need be to find the next."""
        orders, found = set[Hashable](), list[_Job]()
        for job in tuple(self._jobs):
            if job.order is None or job.order not in orders:
                orders.add(job.order)
                found.append(job)
                if not job.tries:
                    break
        return found

    def close(self) -> None:
        """Do the jobs that are left, within a moment; called off the loop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_PATIENCE)


_GONE: Final = object()


class ClusterSlots:
    """One slot of each limit that a request falls under, in the store.

    Args:
        asked: when the store was asked for them (``steady``).
    """

    def __init__(self, give_back: Callable[[], None], pulse: Pulse, asked: float) -> None:
        self.give_back = give_back
        self._pulse = pulse
        self._asked = asked

    @property
    def are_kept(self) -> bool:
        """Whether this process has counted as alive all along, so that the slots have, too."""
        return self._pulse.is_fresh and self._pulse.since <= self._asked


class _SlotRequest:
    """A request for slots, and the loop that waits for them."""

    def __init__(self, limits: Mapping[str, int], on_wait: Callable[[], None]) -> None:
        self.limits = limits
        self.slots: ClusterSlots | None = None
        self._on_wait: Callable[[], None] | None = on_wait
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[ClusterSlots] = self._loop.create_future()

    def give(self, slots: "ClusterSlots") -> bool:
        """Hand the slots over; False if the loop has closed."""
        try:
            self._loop.call_soon_threadsafe(_resolve, self.future, slots)
        except RuntimeError:
            return False
        return True

    def fail(self, error: Exception) -> None:
        """Raise *error* where the slots are awaited."""
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(_reject, self.future, error)

    def note_wait(self) -> None:
        """Have it known, once, that this has to wait."""
        on_wait, self._on_wait = self._on_wait, None
        if on_wait is not None:
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._call_if_waiting, on_wait)

    def _call_if_waiting(self, on_wait: Callable[[], None]) -> None:
        if not self.future.done():
            on_wait()


def _resolve(future: "asyncio.Future[Any]", result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _reject(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _may_pass(error: Exception) -> bool:
    """Whether the store cannot be reached or used just now, so that another try may succeed."""
    lasting = (StoreDamagedError, FencedError)
    return isinstance(error, StoreError) and not isinstance(error, lasting)


def _ownership(tree: Tree) -> Ownership:
    journal = tree.journal
    assert isinstance(journal, DriveJournal)  # as in every shared store
    ownership = journal.drive.ownership
    assert ownership is not None  # this process runs it
    return ownership


def _stored(account: Account, tree: int, *, checked: bool) -> StoredAccount:
    budget, before = account.budget, account.taken_over
    assert account.stored_as is not None  # the others are not asked for
    return StoredAccount(
        name=account.stored_as,
        tree=tree if budget.name is None else 0,
        most_calls=budget.calls if checked else None,
        most_tokens=budget.tokens if checked else None,
        most_usd=None if budget.usd is None or not checked else Decimal(budget.usd),
        history=0 if budget.name is not None else account.history or tree,
        calls=before.calls,
        tokens=before.tokens,
        usd=before.usd,
    )


def _refused(account: Account, refused: Overdrawn, estimate: Estimate) -> Refused:
    spent = Spent(refused.calls, refused.tokens, refused.usd)
    found = None if refused.must_wait else refusal(account, spent, estimate)
    return found or Refused(account, "others have used it up", must_wait=refused.must_wait)
