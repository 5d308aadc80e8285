"""Runs trees of a shared store in this process: takes them over, and gives them up again."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from treefold.core.call_request import CallRequest
from treefold.core.cluster import Load, Orders, Ownership
from treefold.core.commands import CancelCall, ExpireQuestion, write_command
from treefold.core.errors import (
    ClosedError,
    EngineError,
    FencedError,
    StoreError,
    UnknownNodeError,
    UsageError,
)
from treefold.core.events import StopCause
from treefold.core.question import Question, QuestionKey
from treefold.core.work_engine import Stop, Taken, Ticket, WorkEngine
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.stage import Stage
from treefold.runtime.calls.walk import upwards
from treefold.runtime.cluster.cluster_allowances import ClusterAllowances
from treefold.runtime.cluster.command_reader import CommandReader
from treefold.runtime.cluster.current_tree import CurrentTree
from treefold.runtime.cluster.dispatcher import Dispatcher
from treefold.runtime.cluster.follower import Follower
from treefold.runtime.cluster.heartbeat import Heartbeat
from treefold.runtime.cluster.insisting import insist
from treefold.runtime.cluster.remote_calls import RemoteCalls
from treefold.runtime.cluster.runs import GRACE, Runs
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.inbox import Execute
from treefold.runtime.durable.loader import Loader
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.tree_source import NewTree
from treefold.runtime.durable.worker_settings import (
    WorkerPhase,
    WorkerSettings,
    WorkerStatus,
)
from treefold.runtime.engine import Engine
from treefold.runtime.forks import Forks
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.observe.observer import Observer
from treefold.runtime.recovery import Recovery

log = logging.getLogger(__name__)


class Worker(Recovery):  # noqa: PLR0904 - a backend, and what others see of it
    """The backend of a runtime whose store several processes share.

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
        loader: Loader,
        source: SharedTrees,
        allowances: ClusterAllowances,
        work_engine: WorkEngine | None,
        settings: WorkerSettings,
        execute: Execute,
        engine: Engine,
    ) -> None:
        super().__init__(loader, engine)
        # Trees are taken over one by one, at any time.
        self.trials.begin()
        self.forks = self._forks = Forks(self, engine)
        self.worker = self
        self.settings = settings
        self._dispatcher = Dispatcher(
            self._store, source, work_engine, settings, self._take, self._load_changed
        )
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
        self._started = ExitStack()  # what has to be closed, the newest first
        self._observer = Observer(self._store)
        store, changes = self._store, self.journal.changes
        self.follower = Follower(store, engine, settings.poll, self._cancel_elsewhere, changes)
        self.remote_calls = self._remote_calls = RemoteCalls(
            self.follower, self._submit, self._submit_soon, self._cancel_elsewhere
        )
        self._runs = Runs(store, self, engine, source, self._remote_calls, self._dispatcher, self)
        self._allowances = allowances
        self.placement = self if self._dispatcher.is_placed else None

    # Starting and stopping

    def start(self, loop_handle: LoopHandle) -> None:
        """Begin to take part, on the loop of the runtime."""
        self._loop_handle = loop_handle
        self.journal.loop = loop_handle.loop
        self._heartbeat = Heartbeat(
            self._store.name,
            self._source,
            self.settings.beat,
            load=self._load,
            on_orders=partial(self.post, self._obey),
            on_dead=partial(self.post, self._die),
        )
        self._started.callback(self._heartbeat.close)
        self.commands = CommandReader(
            self._store,
            self.inbox,
            self._runs,
            loop_handle,
            interval=self.settings.poll,
            execute=self._execute,
        )
        self._started.callback(self.commands.close)
        subscription = self._source.cluster.listen(self._hear, posted=self._hear_posted)
        self._started.callback(subscription.close)
        self.spawn(self.follower.run(), "follower")
        self.spawn(self._runs.pauses_above.run(), "pauses above")
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
        self._dispatcher.stop()

    async def stop(self) -> None:
        """Stop sweeping and taking trees; those that run here go on."""
        # Without this, what was just submitted would wait for the sweep of another process.
        if self._submissions:
            await asyncio.wait(tuple(self._submissions), timeout=GRACE)
        self._dispatcher.stop()
        # A task that is cancelled may start another one, such as a release.
        while tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self.follower.close()
        closing = asyncio.get_running_loop().create_task(self._dispatcher.close())
        done, _ = await asyncio.wait({closing}, timeout=GRACE)
        if not done:
            log.warning("the engine does not disconnect, and is left")
            closing.cancel()
        for ended in done:
            ended.result()  # raises what it has raised

    def _leave(self) -> None:
        """Leave the store: other workers may take over what is open; called off the loop."""
        self._observer.close()
        self._allowances.close()
        self._started.close()
        try:
            self._store.leave()
        except StoreError as error:
            log.warning("the trees of this worker are taken over when its lease ends: %s", error)

    # Submitting

    def new_tree(self, request: CallRequest) -> NewTree:
        new = self._source.new_tree()
        queue = request.queue or request.function.queue
        return self._place(new, queue, request.priority)

    def new_fork(self, calls: int, source: Ticket | None) -> NewTree:
        queue, priority = ("", 0) if source is None else (source.queue, source.priority)
        return self._place(self._source.new_fork(calls), queue, priority)

    def _place(self, new: NewTree, queue: str, priority: int) -> NewTree:
        queue = queue or min(self.settings.queues)
        ticket = Ticket(node=new.id, queue=queue, priority=priority)
        self._submitted[new.id] = ticket
        return self._source.submitted(new, ticket)

    def ticket(self, tree: int) -> Ticket | None:
        return self._source.cluster.drives.ticket(tree)

    def withdraw(self, tree: int) -> None:
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

    def _submit_soon(self, ticket: Ticket, node: CallNode) -> None:
        self.spawn(self._submit_again(ticket, node), f"submission of {node.id}")

    async def _submit_again(self, ticket: Ticket, node: CallNode) -> None:
        with suppress(FencedError):  # another worker runs its caller, and submits it
            await self._submit(ticket, node)

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
            # An engine may take long to give back what it has.
            await asyncio.wait({working, draining}, timeout=GRACE)
            await self._runs.abandon()
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
        if cause is StopCause.Abandoned:
            self._remote_calls.note_abandoned(node)
        body = write_command(CancelCall(node, reason, cause))
        self.spawn(self._post_to(node, body), "cancellation")

    def expire(self, question: Question) -> None:
        body = write_command(ExpireQuestion(question.id))
        self.spawn(self._post_expiry(question, body), "expiry")

    async def _post_expiry(self, question: Question, body: str) -> None:
        # If the store does not answer, the board tries again.
        with suppress(StoreError):
            await in_thread(self._store.post, body, question=question.id)
            self.commands.wake()

    async def _post_to(self, node: int, body: str) -> None:
        # If there is no such node any more, there is nothing to cancel.
        with suppress(UnknownNodeError):
            await insist(partial(self._post_written, node, body))

    def _post_written(self, node: int, body: str) -> bool:
        # The node may have been requested just now.
        self.journal.flush()
        return self._store.post(body, node=node)

    # Recorded calls

    def found(self, root: CallNode, place: int) -> None:
        self.follower.follow(root, after=place)
        root.asked_for = True  # by who has submitted it

    def note_end(self, node: CallNode) -> None:
        # Otherwise it was given up, with its caller, and goes on in another process or in this one.
        if node.has_recorded_end:
            self._board.forget_old(node.id)

    def resume_with(self, root: CallNode, request: CallRequest) -> None:
        # Another process may run it, and otherwise it is delivered again.
        if root.stage is Stage.Requested:
            self._learn(root, request)

    def resume_held_back(self, root: CallNode, without: Sequence[str]) -> None:
        if root.id not in self.held_back:
            raise UsageError(f"run {root.index} is running, bound by its guards: stop it first")
        self.lift_guards(root, without)
        self.resume(root, was_killed=False)

    def recovered(self) -> list[int]:
        return sorted(self.resumed)

    def views(self, node: CallNode) -> CurrentTree:
        return CurrentTree(self._engine, node.id)

    def elsewhere(self, node: CallNode) -> Observer | None:
        top = next(one for one in upwards(node) if one.record.requested.queue or not one.parent)
        runs_here = self._source.is_recording(top.id) and not node.tree.is_given_up
        return None if runs_here else self._observer

    def questions(self) -> list[Question]:
        stored = self._observer.questions()
        known = {question.id for question in stored}
        # A question that was just asked may not be written yet.
        local = self._board.questions()
        return stored + [question for question in local if question.id not in known]

    def answer(self, id: str, text: Any, args: Mapping[str, Any] | None) -> None:
        # The process that runs the tree settles it.
        local = self._board.find(id)
        if local is not None and local.key == QuestionKey.Journal:
            self._board.answer(id, text, args)
            return
        if local is not None:
            # Others must be able to see it, so that one answer wins.
            self.journal.flush()
        self._observer.answer(id, text, args=args)
        if self._loop_handle is not None:  # otherwise no tree runs here
            self.commands.wake()

    # News of the store

    def opened(self, root: CallNode) -> None:
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
            if not self._source.cluster.drives.release(ownership, parked=True):
                # There are messages for it: the sweep finds a worker that executes them.
                self._source.cluster.drives.release(ownership, parked=False)
        return True

    def _hear(self, trees: Collection[int]) -> None:
        """Note that trees have changed, in a thread of the store."""
        # A worker hears of the trees of all others, too.
        if not trees or self.follower.follows(trees):
            self.post(self.follower.hear, frozenset(trees))

    def _hear_posted(self, trees: Collection[int]) -> None:
        """Note that messages were posted for trees, in a thread of the store."""
        if not trees or self._source.owned_in(frozenset(trees)):
            self.commands.wake()

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
        load, journal = self._load(), self.journal
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
            lost=self._runs.lost,
        )
