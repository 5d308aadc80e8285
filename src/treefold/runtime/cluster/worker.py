"""Runs trees of a shared store in this process: takes them over, and gives them up again."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from treefold.core.call_request import CallRequest
from treefold.core.commands import CancelCall, ExpireQuestion, write_command
from treefold.core.errors import (
    ClosedError,
    EngineError,
    FencedError,
    StoreError,
    UnknownNodeError,
)
from treefold.core.events import StopCause
from treefold.core.question import Question, QuestionKey
from treefold.core.shared_store import Load, Orders, Ownership, SharedStore, Ticket
from treefold.core.work_engine import Stop, Taken, WorkEngine
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import upwards
from treefold.runtime.cluster.cluster_allowances import ClusterAllowances
from treefold.runtime.cluster.command_reader import CommandReader
from treefold.runtime.cluster.dispatcher import Dispatcher
from treefold.runtime.cluster.follower import Follower
from treefold.runtime.cluster.heartbeat import Heartbeat
from treefold.runtime.cluster.insisting import insist
from treefold.runtime.cluster.remote_calls import RemoteCalls
from treefold.runtime.cluster.runs import GRACE, Runs
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.inbox import Execute
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.tree_source import NewTree
from treefold.runtime.durable.worker_settings import (
    WorkerPhase,
    WorkerSettings,
    WorkerStatus,
)
from treefold.runtime.engine import Engine
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.observe.observer import Observer
from treefold.runtime.recovery import Recovery
from treefold.runtime.tree_registry import TreeRegistry

log = logging.getLogger(__name__)


class Worker:
    """The part of a runtime that shares a store with other processes.

    Args:
        work_engine: places trees on workers; without one this process runs what it starts, and
            takes orphaned trees over.
        execute: executes a command of another process.

    Attributes:
        commands: reads what other processes ask for; since this was started.
    """

    commands: CommandReader

    def __init__(
        self,
        store: SharedStore,
        recovery: Recovery,
        engine: Engine,
        registry: TreeRegistry,
        work_engine: WorkEngine | None,
        settings: WorkerSettings,
        execute: Execute,
    ) -> None:
        source = engine.source
        assert isinstance(source, SharedTrees)  # as in every shared store
        self.store = store
        self.settings = settings
        self._dispatcher = Dispatcher(
            store, work_engine, settings, source.pulse, self._take, self._load_changed
        )
        self._recovery = recovery
        self._engine = engine
        self._board = engine.services.board
        self._source = source
        self._execute = execute
        # Trees that were started here, and have ended.
        self._over: list[tuple[CallNode, Ownership]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._submissions: set[asyncio.Task[None]] = set()
        self._submitted: dict[int, Ticket] = {}  # new trees, until the engine has them
        self._death: FencedError | None = None  # why this worker cannot go on
        self._loop_handle: LoopHandle | None = None
        self._heartbeat: Heartbeat | None = None
        self._observer = Observer(store)
        changes = recovery.journal.changes
        self.follower = Follower(store, engine, settings.poll, self._cancel_elsewhere, changes)
        registry.on_open = self._own
        engine.on_found = lambda root, place: self.follower.follow(root, after=place)
        self._remote_calls = RemoteCalls(self.follower, self._submit, self._cancel_elsewhere)
        engine.remote_calls = self._remote_calls
        self._runs = Runs(
            store, recovery, engine, registry, source, self._remote_calls, self._dispatcher, self
        )
        self._board.timers.on_expiry = self._expire
        self._allowances = engine.services.shared = ClusterAllowances(store)
        engine.accounts.share()
        if self._dispatcher.is_placed:
            engine.placement = self

    # Starting and stopping

    def start(self, loop_handle: LoopHandle) -> None:
        """Begin to take part, on the loop of the runtime."""
        self._loop_handle = loop_handle
        self._recovery.journal.loop = loop_handle.loop
        self._heartbeat = Heartbeat(
            self.store,
            self.settings.beat,
            self._source.pulse,
            load=self._load,
            on_orders=partial(self.post, self._obey),
            on_dead=partial(self.post, self._die),
        )
        self.commands = CommandReader(
            self.store,
            self._recovery.inbox,
            self._runs,
            loop_handle,
            interval=self.settings.poll,
            execute=self._execute,
        )
        self._subscription = self.store.listen(self._hear)
        self.spawn(self.follower.run(), "follower")
        self.spawn(self._dispatcher.run(), "dispatcher")
        if not self._dispatcher.is_placed:
            work = self._dispatcher.work(
                self.settings.queues, self.settings.slots, self._dispatcher.stopping
            )
            self.spawn(work, "in-process work")

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call *function* on the loop, from a thread of the store."""
        assert self._loop_handle is not None  # it has been started
        with suppress(ClosedError):
            self._loop_handle.call_soon(function, *args)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start a task, which is cancelled when this stops."""
        assert self._loop_handle is not None  # it has been started
        task = self._loop_handle.loop.create_task(work, name=f"treefold {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    def stop_taking(self) -> None:
        """Take no more trees; on the loop."""
        self._dispatcher.stop()

    async def stop(self) -> None:
        """Stop sweeping and taking trees; those that run here go on."""
        # Without this, what was just submitted would wait for the sweep of another process.
        if self._submissions:
            await asyncio.wait(tuple(self._submissions), timeout=GRACE)
        self._dispatcher.stop()
        for task in tuple(self._tasks):
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self.follower.close()
        await self._dispatcher.close()

    def close(self) -> None:
        """Leave the store: other workers may take over what is open; called off the loop."""
        self._observer.close()
        self._allowances.close()
        if self._loop_handle is not None:
            self._subscription.close()
            self.commands.close()
        if self._heartbeat is not None:
            self._heartbeat.close()
        try:
            self.store.leave()
        except StoreError as error:
            log.warning("the trees of this worker are taken over when its lease ends: %s", error)

    # Submitting

    def new_tree(self, request: CallRequest) -> NewTree:
        """Return a new tree that any worker may run which serves the queue of *request*."""
        new = self._source.new_tree()
        queue = request.queue or request.function.queue
        return self._place(new, queue, request.priority)

    def new_fork(self, calls: int, source: Ticket | None) -> NewTree:
        """Return a new tree for the workers of its *source*, with ids for that many calls."""
        queue, priority = ("", 0) if source is None else (source.queue, source.priority)
        return self._place(self._source.new_fork(calls), queue, priority)

    def _place(self, new: NewTree, queue: str, priority: int) -> NewTree:
        queue = queue or min(self.settings.queues)
        ticket = Ticket(node=new.id, queue=queue, priority=priority)
        self._submitted[new.id] = ticket
        return self._source.submitted(new, ticket)

    def withdraw(self, tree: int) -> None:
        """Forget a new tree that is not to be submitted."""
        del self._submitted[tree]

    def submit(self, root: CallNode) -> None:
        """Submit a new tree to the engine once it is written, and follow it here."""
        journal = root.tree.journal
        assert isinstance(journal, DriveJournal)  # as in every shared store
        self.follower.follow(root, after=journal.drive.recorded)
        submission = self.spawn(
            self._submit_tree(self._submitted.pop(root.id), root), f"submission of {root.id}"
        )
        self._submissions.add(submission)
        submission.add_done_callback(self._submissions.discard)

    async def _submit_tree(self, ticket: Ticket, root: CallNode) -> None:
        try:
            await self._submit(ticket, root)
        except FencedError as error:
            # The source of a fork was deleted meanwhile, so the fork cannot be written.
            self.follower.forget(root)
            root.end_fenced(error)

    async def _submit(self, ticket: Ticket, node: CallNode) -> None:
        journal = node.tree.journal
        assert journal is not None  # it is in the store
        await journal.saved(node)
        try:
            await self._dispatcher.submit(ticket)
        except (EngineError, ClosedError) as error:
            # It is owed in the store, so a sweep submits it again, of another worker if need be.
            log.warning("%s is submitted later: %s", node, error)

    # Taking trees

    async def work(self, queues: Collection[str], slots: int, drain: float, stop: Stop) -> None:
        """Run what the engine delivers until *stop* is set; then give up what runs here.

        Raises:
            EngineError: the engine cannot be opened.
            FencedError: this worker counted as dead.
        """
        assert self._loop_handle is not None  # it has been started
        create_task = self._loop_handle.loop.create_task
        working = create_task(self._dispatcher.work(queues, slots, stop), name="treefold work")
        draining = create_task(self._drain(drain), name="treefold drain")
        try:
            await asyncio.wait({working, draining}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()  # raises what it has raised
            await draining
            await asyncio.wait({working}, timeout=GRACE)
        finally:
            for task in (working, draining):
                task.cancel()
            await asyncio.wait({working, draining})
        if self._death is not None:
            raise self._death

    async def _take(self, node: int) -> Taken:
        return await self._runs.take(node)

    async def _drain(self, seconds: float) -> None:
        await self._dispatcher.stopping.wait()
        await self._runs.drain(seconds)

    # Commands for other workers

    def _cancel_elsewhere(self, node: int, reason: str, cause: StopCause) -> None:
        """Ask the process that runs a node to cancel it; on the loop, which does not wait."""
        body = write_command(CancelCall(node, reason, cause))
        self.spawn(self._post_to(node, body), "cancellation")

    def _expire(self, question: Question) -> None:
        """Let a question expire, unless it has been answered; on the loop."""
        body = write_command(ExpireQuestion(question.id))
        self.spawn(self._post_expiry(question, body), "expiry")

    async def _post_expiry(self, question: Question, body: str) -> None:
        # If the store does not answer, the board tries again.
        with suppress(StoreError):
            await in_thread(self.store.post, body, question=question.id)
            self.commands.wake()

    async def _post_to(self, node: int, body: str) -> None:
        # If there is no such node any more, there is nothing to cancel.
        with suppress(UnknownNodeError):
            await insist(partial(self._post_written, node, body))

    def _post_written(self, node: int, body: str) -> bool:
        # The node may have been requested just now.
        self._recovery.journal.flush()
        return self.store.post_to(node, body)

    def elsewhere(self, node: CallNode) -> Observer | None:
        """Return an observer that posts commands, if this process does not run *node*."""
        top = next(one for one in upwards(node) if one.record.requested.queue or not one.parent)
        return None if self._source.is_recording(top.id) else self._observer

    def questions(self) -> list[Question]:
        """Return the open questions of all trees in the store, oldest first."""
        stored = self._observer.questions()
        known = {question.id for question in stored}
        # A question that was just asked may not be written yet.
        local = self._board.questions()
        return stored + [question for question in local if question.id not in known]

    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None) -> None:
        """Answer a question of any tree; the process that runs the tree settles it."""
        local = self._board.find(id)
        if local is not None and local.key == QuestionKey.Journal:
            self._board.answer(id, text, args)
            return
        if local is not None:
            # Others must be able to see it, so that one answer wins.
            self._recovery.journal.flush()
        self._observer.answer(id, text, args=args)
        self.commands.wake()

    # News of the store

    def _own(self, root: CallNode) -> None:
        """Note a tree that was started here, until it ends."""
        journal = root.tree.journal
        if isinstance(journal, DriveJournal) and root.id not in self._runs:
            journal.drive.on_refused = partial(self.post, self._runs.lose, root.id)
            root.add_end_callback(partial(self._ended, root))

    def _ended(self, root: CallNode) -> None:
        drive, journal = self._source.drive_of(root.id), root.tree.journal
        # If its journal is closed, its end was not recorded: this process stops.
        is_recorded = journal is not None and not journal.is_closed
        if root.id in self._runs or drive is None or drive.ownership is None:
            return
        self._source.forget(root.id)
        if is_recorded and drive.refusal is None:
            self._over.append((root, drive.ownership))
            if len(self._over) == 1:
                self.spawn(self._release_over(), "releases")

    async def _release_over(self) -> None:
        """Release the trees that were started here and have ended, so that others may fork them."""
        while self._over:
            over, self._over = self._over, []
            written: list[Ownership] = []
            for root, ownership in over:
                journal = root.tree.journal
                assert journal is not None  # it is in the store
                with suppress(FencedError):
                    # What is written after a release would be refused.
                    await journal.saved(root)
                    written.append(ownership)
            await insist(partial(self._release_all, written))

    def _release_all(self, over: Iterable[Ownership]) -> bool:
        for ownership in over:
            if not self.store.release(ownership, parked=True):
                # There are messages for it: the sweep finds a worker that executes them.
                self.store.release(ownership, parked=False)
        return True

    def _hear(self, trees: Collection[int]) -> None:
        """Note that trees have changed, in a thread of the store."""
        if not trees or not set(trees).isdisjoint(self._source.owned()):
            self.commands.wake()
        self.post(self.follower.hear, frozenset(trees))

    def _obey(self, orders: Orders, sent: float) -> None:
        """Do what a heartbeat has answered that was *sent* then; on the loop."""
        for node in orders.lost:
            self._runs.lose(node)
        if orders.messages:
            self.commands.wake()
        if orders.drain and not self._dispatcher.stopping.is_set():
            log.warning("this worker was asked to stop")
            self._dispatcher.stop()
        # Not before: a call that is about to begin has to know whether its tree is lost.
        self._source.pulse.confirm(sent)

    def _die(self, error: FencedError) -> None:
        """Stop everything, and work no more: others run the trees of this worker."""
        log.error("this worker stops what it runs: %s", error)
        self._death = error
        self._dispatcher.stop()
        for node in self._source.owned():
            self._runs.lose(node)

    # What others see of it

    def _load(self) -> Load:
        return Load(
            running=self._runs.running,
            waiting=self._runs.waiting,
            slots=self._dispatcher.slots,
            draining=self._dispatcher.stopping.is_set(),
        )

    def _load_changed(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.beat_now()

    def status(self) -> WorkerStatus:
        """Return how this worker does; from any thread."""
        load, journal = self._load(), self._recovery.journal
        phase = WorkerPhase.Ready
        if self._death is not None:
            phase = WorkerPhase.Dead
        elif load.draining:
            phase = WorkerPhase.Draining
        elif not load.slots:
            phase = WorkerPhase.Starting
        beaten = 0.0 if self._heartbeat is None else self._heartbeat.seconds_since()
        is_failing = self._heartbeat is not None and self._heartbeat.is_failing
        return WorkerStatus(
            phase=phase,
            running=load.running,
            waiting=load.waiting,
            slots=load.slots,
            is_reachable=not is_failing and beaten < self.settings.lease,
            beaten=beaten,
            appends=journal.appends,
            entries=journal.written,
            fenced=journal.fenced,
        )
