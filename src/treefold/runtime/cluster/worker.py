"""Runs trees of a shared store in this process: takes them over, and gives them up again."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from treefold.core.agent_events import NoticeGiven
from treefold.core.call_request import CallRequest
from treefold.core.errors import (
    ClosedError,
    EngineError,
    FencedError,
    InvalidValueError,
    StoreError,
    UnknownNodeError,
)
from treefold.core.events import Event
from treefold.core.question import Question, QuestionKey
from treefold.core.shared_store import Load, Orders, Ownership, SharedStore, Ticket
from treefold.core.store import Message
from treefold.core.work_engine import Stop, Taken, WorkEngine
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import subtree, upwards
from treefold.runtime.cluster.cluster_allowances import ClusterAllowances
from treefold.runtime.cluster.command_reader import CommandReader
from treefold.runtime.cluster.dispatcher import Dispatcher
from treefold.runtime.cluster.follower import Follower
from treefold.runtime.cluster.heartbeat import Heartbeat
from treefold.runtime.cluster.remote_calls import RemoteCalls, is_remote
from treefold.runtime.cluster.run import Run
from treefold.runtime.durable.commands import read_command, write_command
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.inbox import Execute
from treefold.runtime.durable.loader import PastFunction
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.tree_reader import TreeReader
from treefold.runtime.durable.tree_source import NewTree
from treefold.runtime.durable.worker_settings import (
    WorkerPhase,
    WorkerSettings,
    WorkerStatus,
)
from treefold.runtime.engine import Engine
from treefold.runtime.limits.leases import close_leases
from treefold.runtime.loops.loop_handle import LoopHandle, threadsafe_resolver
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.observe.observer import Observer
from treefold.runtime.questions.pauses import pause_node
from treefold.runtime.recovery import Recovery
from treefold.runtime.tree_registry import TreeRegistry
from treefold.runtime.trees.run_log import name_of

log = logging.getLogger(__name__)

_RETRY: Final = 1.0  # seconds
_GRACE: Final = 5.0  # seconds for the last round trips to the store and the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What was read of a drive: the events and open questions of its tree.

    Attributes:
        messages: commands that were posted when nobody ran it.
        journal: records what happens from here on.
        was_killed: whether its last owner died.
    """

    events: list[Event]
    questions: list[Question]
    messages: list[Message]
    journal: DriveJournal
    was_killed: bool


class Worker:
    """The part of a runtime that shares a store with other processes.

    Args:
        work_engine: places trees on workers; without one this process runs what it starts, and
            takes over what nobody else runs.
        execute: executes a command of another process.
    """

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
            store, work_engine, settings, source.pulse, self.take, self._load_changed
        )
        self._recovery = recovery
        self._engine = engine
        self._registry = registry
        self._board = engine.services.board
        self._source = source
        self._execute = execute
        self._runs: dict[int, Run] = {}
        self._taking: set[int] = set()
        self._disowned: set[int] = set()  # drives to be released: they were not resumed
        self._over: list[
            tuple[CallNode, Ownership]
        ] = []  # of trees that were started here, and have ended
        self._lost: set[int] = set()  # drives that other workers have adopted
        self._tasks: set[asyncio.Task[None]] = set()
        self._submissions: set[asyncio.Task[None]] = set()
        self._submitted: dict[int, Ticket] = {}  # new trees, until the engine has them
        self._drain_until = math.inf  # in the time of the loop
        self._death: FencedError | None = None  # why this worker cannot go on
        self._loop_handle: LoopHandle | None = None
        self._heartbeat: Heartbeat | None = None
        self._observer = Observer(store)
        self.follower = Follower(store, engine, settings.poll, self._cancel_elsewhere)
        registry.on_open = self._own
        engine.on_found = lambda root, known: self.follower.follow(root, known=known)
        self._remote_calls = RemoteCalls(self.follower, self._submit, self._cancel_elsewhere)
        engine.remote_calls = self._remote_calls
        self._allowances = engine.services.shared = ClusterAllowances(store)
        engine.store_budgets()
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
            on_orders=partial(self._post, self._obey),
            on_dead=partial(self._post, self._die),
        )
        self._commands = CommandReader(
            self.store,
            self._recovery.inbox,
            self.settings.poll,
            owned=self._source.owned,
            begin=lambda node: loop_handle.run_sync(self._begin_commands, node),
            end=lambda node: loop_handle.run_sync(self._end_commands, node),
            execute=self._execute,
            may_forget=self._may_forget,
        )
        self._subscription = self.store.listen(self._hear)
        self._spawn(self.follower.run(), "follower")
        self._spawn(self._dispatcher.run(), "dispatcher")
        if not self._dispatcher.is_placed:
            work = self._dispatcher.work(
                self.settings.queues, self.settings.slots, self._dispatcher.stopping
            )
            self._spawn(work, "in-process work")

    def _post(self, function: Callable[..., object], *args: Any) -> None:
        """Call *function* on the loop, from a thread of the store."""
        assert self._loop_handle is not None  # it has been started
        with suppress(ClosedError):
            self._loop_handle.call_soon(function, *args)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        assert self._loop_handle is not None  # it has been started
        task = self._loop_handle.loop.create_task(work, name=f"treefold {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def stop(self) -> None:
        """Stop sweeping and taking trees; those that run here go on."""
        # Without this, what was just submitted would wait for the sweep of another process.
        if self._submissions:
            await asyncio.wait(tuple(self._submissions), timeout=_GRACE)
        self._dispatcher.stop()
        for task in tuple(self._tasks):
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._dispatcher.close()

    def close(self) -> None:
        """Leave the store: other workers may take over what is open; called off the loop."""
        self._observer.close()
        self._allowances.close()
        if self._loop_handle is not None:
            self._subscription.close()
            self._commands.close()
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

    def new_fork(self, calls: int) -> NewTree:
        """Return a new tree that any worker may run, with ids for that many calls."""
        return self._place(self._source.new_fork(calls), "", 0)

    def _place(self, new: NewTree, queue: str, priority: int) -> NewTree:
        queue = queue or min(self.settings.queues)
        ticket = Ticket(node=new.id, queue=queue, priority=priority)
        self._submitted[new.id] = ticket
        return self._source.submitted(new, ticket)

    def submit(self, root: CallNode, known: int) -> None:
        """Submit a new tree to the engine once it is written, and follow it here."""
        self.follower.follow(root, known=known)
        submission = self._spawn(
            self._submit(self._submitted.pop(root.id), root), f"submission of {root.id}"
        )
        self._submissions.add(submission)
        submission.add_done_callback(self._submissions.discard)

    async def _submit(self, ticket: Ticket, node: CallNode) -> None:
        journal = node.tree.journal
        assert journal is not None  # it is in the store
        await journal.saved(node)
        try:
            await self._dispatcher.submit(ticket)
        except EngineError as error:
            # It is owed in the store, so a sweep submits it again.
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
        draining = create_task(self._drain_when_stopped(drain), name="treefold drain")
        try:
            await asyncio.wait({working, draining}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()  # raises what it has raised
            await draining
            await asyncio.wait({working}, timeout=_GRACE)
        finally:
            for task in (working, draining):
                task.cancel()
            await asyncio.wait({working, draining})
        if self._death is not None:
            raise self._death

    async def take(self, node: int) -> Taken:
        """Run a tree until it has ended or waits for a person, unless another worker has it."""
        # A tree that was started here is not adopted: that would end the ownership it has.
        is_owned = self._source.drive_of(node) is not None and node not in self._runs
        if node in self._taking or node in self._disowned or is_owned:
            return Taken.Done
        if self._dispatcher.stopping.is_set():
            return Taken.Later
        if (run := self._runs.get(node)) is None:
            self._taking.add(node)
            try:
                run = await self._adopt(node)
            except StoreError as error:
                log.warning("tree %d is taken later: %s", node, error)
                return Taken.Later
            finally:
                self._taking.discard(node)
        if not isinstance(run, Run):
            return run
        if self._drain_until < math.inf:
            # It was adopted when this process was already giving up what it has.
            await self._leave(run)
        await run.rested.wait()
        return Taken.Done

    async def _adopt(self, node: int) -> Run | Taken:
        """Become the owner of a tree, load it and resume it."""
        ownership = await self._own_drive(node)
        if ownership is None:
            return Taken.Done
        self._lost.discard(node)
        try:
            return await self._resume(ownership)
        except BaseException:
            # Also after a cancellation: nobody else may take it before it is released.
            self._source.forget(node)
            self._disowned.add(node)
            self._spawn(self._disown(ownership), f"release of {node}")
            raise

    async def _own_drive(self, node: int) -> Ownership | None:
        """Become the owner of a drive, or learn that it is over or another worker has it.

        This takes until the store answers: it may have made this worker the owner and its answer
        may be lost, and then nobody else would run the drive as long as this worker lives.
        """
        was_refused = False
        while True:
            try:
                return await in_thread(self.store.adopt, node)
            except FencedError:
                raise
            except StoreError as error:
                if not was_refused:
                    log.warning("tree %d is taken later: %s", node, error)
                was_refused = True
                await asyncio.sleep(_RETRY)

    async def _resume(self, ownership: Ownership) -> Run | Taken:
        assert self._loop_handle is not None  # it has been started
        if (run := self._run_in_place(ownership)) is not None:
            return run
        read = await in_thread(self._read, ownership)
        journal = read.journal
        journal.drive.on_refused = partial(self._post, self._lose, ownership.node)
        if is_remote(ownership):
            root = self._engine.load_call(ownership.tree, ownership.node, read.events, journal)
            # They are held for the calls above it, which do not end in this process.
            root.add_end_callback(partial(close_leases, root))
        else:
            if (replica := self._engine.loaded(ownership.tree)) is not None:
                self._registry.forget(replica)
            root = self._engine.load(ownership.tree, read.events)
        # What was cancelled while nobody ran it must not begin, nor wait for its function.
        self._execute_early(root, read.messages, "cancel", root.cancel_on_loop)
        is_over = root.has_ended or root.is_ending
        if not is_over and (missing := self._missing(root)):
            log.warning("tree %d waits for a worker that has %s", root.id, missing)
            await self._unload(journal, root)
            await in_thread(self.store.release, ownership, parked=False)
            return Taken.Later
        mine = {node.id for node in subtree(root)}
        for question in read.questions:
            if question.node_id in mine:
                self._recovery.take_over(question, self._loop_handle)
        run = self._new_run(journal, root, ownership)
        log.info("%s was taken", name_of(root.record))
        if not is_over:
            if is_remote(ownership):
                self._recovery.resume_call(root, was_killed=read.was_killed)
            else:
                self._recovery.resume_tree(root.id, was_killed=read.was_killed)
            # Nothing has run yet, so no call is made before a pause is in force.
            self._execute_early(root, read.messages, "pause", partial(pause_node, root))
        self._commands.wake()
        self._spawn(self._attend(run), f"tree {root.id}")
        return run

    def _execute_early(
        self, root: CallNode, messages: Iterable[Message], what: str, act: Callable[[str], None]
    ) -> None:
        """Execute the commands of one kind for *root* that were posted when nobody ran it.

        All others are executed as those that arrive later.
        """
        for message in messages:
            command: Mapping[str, Any] = {}
            with suppress(InvalidValueError):
                command = read_command(message.body)
            if command.get("do") == what and command.get("node") == root.id:
                act(str(command.get("reason", "")))
                self._commands.note_executed(message.id, root.id)

    def _missing(self, root: CallNode) -> str:
        """Return which function, or version of one, another worker must have to run *root*."""
        if isinstance(root.function, PastFunction):
            return root.function.name
        pinned = self._recovery.why_pinned(root)
        return f"the version it began with: {pinned}" if pinned else ""

    def _run_in_place(self, ownership: Ownership) -> Run | None:
        """Run a remote call whose caller this process runs, as part of that tree.

        If another worker has begun it, what that one has written has to be read first.
        """
        is_new = is_remote(ownership) and not ownership.written
        node = self._engine.loaded(ownership.node) if is_new else None
        if node is None or not self._remote_calls.run_here(node):
            return None
        journal = node.tree.journal
        assert isinstance(journal, DriveJournal)  # as in every shared store
        self._source.own_in_place(node.id, journal)
        run = self._new_run(journal, node, ownership)
        self._spawn(self._attend_in_place(run), f"call {node.id}")
        return run

    async def _attend_in_place(self, run: Run) -> None:
        """Give up a call that runs as part of its tree when it has ended, or the tree is gone."""
        try:
            while not run.root.has_ended:
                run.note_rest()
                await self._changed(run)
        finally:
            run.rested.set()
            self._runs.pop(run.node, None)
            self._source.forget(run.node)
        # If its tree was unloaded, nothing of its end was recorded, and others run it again.
        is_over = not run.journal.is_closed
        await self._insist(partial(self.store.release, run.ownership, parked=is_over))
        run.over.set()

    def _new_run(self, journal: DriveJournal, node: CallNode, ownership: Ownership) -> Run:
        run = Run(journal, node, ownership, self._remote_calls.waiting)
        self._runs[run.node] = run
        return run

    def _read(self, ownership: Ownership) -> _Read:
        """Read a tree that was adopted, and prepare to write it; in a thread."""
        reader = TreeReader(self.store, ownership.tree)
        events = self._engine.restored(reader.read())
        return _Read(
            events=events,
            journal=self._source.adopt(ownership, reader.numbers, reader.place),
            questions=self.store.pending(ownership.tree),
            messages=[*self.store.inbox_of([ownership.node]).get(ownership.node, ())],
            was_killed=self.store.attempts(ownership.node) > 0,
        )

    async def _attend(self, run: Run) -> None:
        """Give the tree up when it waits for a person, and note its end."""
        try:
            while not run.is_lost and not run.is_leaving:
                if run.is_idle and await self._give_up(run):
                    return
                run.note_rest()
                await self._changed(run)
        finally:
            run.rested.set()
            run.over.set()
            if self._runs.get(run.node) is run:
                del self._runs[run.node]

    async def _changed(self, run: Run) -> None:
        """Wait for the next event of the tree, or a moment."""
        changed = run.root.loop_handle.loop.create_future()
        wake = threadsafe_resolver(changed)
        run.root.tree.on_next_event(wake)
        run.root.add_end_callback(wake)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.poll):
                    await changed
        finally:
            run.root.tree.forget(wake)
            run.root.remove_end_callback(wake)

    # Giving trees up

    async def _give_up(self, run: Run) -> bool:
        """Give up a tree that waits for a person or has ended; True if that was done."""
        root, journal = run.root, run.journal
        if not root.has_ended and (why := self._why_kept(run)) is not None:
            self._give_notice(run, why)
            return False
        try:
            await journal.saved(root)
        except FencedError:
            return True
        if journal.is_closed:
            # The runtime is being closed, and has cancelled the call without recording that. Its
            # tree is released when this worker leaves, for others to resume.
            return True
        # From here to the closing of the journal nothing is awaited.
        if run.is_executing or not run.is_idle or not journal.is_saved:
            return False
        run.is_leaving = True
        journal.close()
        ownership, has_ended = run.ownership, root.has_ended
        is_parked = await self._insist(partial(self.store.release, ownership, parked=True))
        if not is_parked and journal.reopen():
            # A message has arrived, and is executed here.
            run.is_leaving = False
            self._commands.wake()
            return False
        await self._unload(run.journal, run.root)
        if not has_ended:
            log.info("%s waits for a person, and was given up", name_of(root.record))
        if not is_parked:
            await self._insist(partial(self.store.release, ownership, parked=False))
            self._dispatcher.sweep_soon()
        return True

    def _why_kept(self, run: Run) -> str | None:
        """Return why a parked tree has to stay in this process, or None."""
        if any(other is not run and other.journal is run.journal for other in self._runs.values()):
            return "a remote call in it runs here, too"
        return run.why_kept()

    async def _insist(self, work: Callable[[], bool]) -> bool:
        """Do *work* in a thread, again and again until the store can be reached."""
        while True:
            try:
                return await in_thread(work)
            except FencedError:
                return True
            except StoreError as error:
                log.debug("a tree is given up later: %s", error)
                await asyncio.sleep(_RETRY)

    def _give_notice(self, run: Run, why: str) -> None:
        text = f"it waits for a person, and stays in this process: {why}"
        root = run.root
        if not run.has_notice:
            run.has_notice = True
            root.tree.publish(NoticeGiven(root.id, text))

    async def _unload(self, journal: DriveJournal, root: CallNode) -> None:
        """Remove a tree from memory without recording anything."""
        journal.close()
        if not root.has_ended:
            root.cancel_on_loop("it is run elsewhere")
            await root.ended()
        self._recovery.forget(root)
        if root.parent is None:
            self._engine.forget_key(root)
        self._registry.forget(root)
        self._source.forget(root.id)

    async def _disown(self, ownership: Ownership) -> None:
        """Give up a drive that could not be resumed."""
        try:
            await self._insist(partial(self.store.release, ownership, parked=False))
        finally:
            self._disowned.discard(ownership.node)

    async def _drain_when_stopped(self, seconds: float) -> None:
        """Give up all trees, each as soon as nothing in it is under way that would be lost.

        After *seconds* the rest is given up all the same.
        """
        await self._dispatcher.stopping.wait()
        self._drain_until = asyncio.get_running_loop().time() + seconds
        everything = tuple(self._runs.values())
        # Calls that run as part of their tree are given up with it.
        runs = [run for run in everything if run.journal.drive.node == run.node]
        leaving = [self._spawn(self._leave(run), f"release of {run.node}") for run in runs]
        try:
            async with asyncio.timeout(seconds + _GRACE):
                for run in everything:
                    await run.over.wait()
        except TimeoutError:
            log.warning("the store does not answer: others take these trees over later")
        finally:
            for task in leaving:
                task.cancel()

    async def _leave(self, run: Run) -> None:
        """Give up a tree as soon as nothing in it is under way that would be lost."""
        run.hold()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._drain_until):
                await self._quiet(run)
        # It may have been parked just now, and have been kept because of a message.
        while not run.over.is_set():
            await self._hand_over(run)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.poll):
                    await run.over.wait()

    async def _quiet(self, run: Run) -> None:
        """Wait until nothing in the tree is under way that would be lost."""
        while not run.is_quiet and not run.root.has_ended and not run.is_leaving:
            await self._changed(run)

    async def _hand_over(self, run: Run) -> None:
        """Give a tree up, so that another worker continues it at once."""
        if run.is_leaving or run.root.has_ended:
            return
        with suppress(FencedError):
            await run.journal.saved(run.root)
        if run.is_leaving:
            return
        run.is_leaving = True
        ownership = run.ownership
        await self._unload(run.journal, run.root)
        await self._insist(partial(self.store.release, ownership, parked=False))
        log.info("%s was handed over to other workers", name_of(run.root.record))

    # Commands for other workers

    def _cancel_elsewhere(self, node: int, reason: str) -> None:
        """Ask the process that runs a node to cancel it; on the loop, which does not wait."""
        body = write_command({"do": "cancel", "node": node, "reason": reason}, "a reason")
        self._spawn(self._post_to(node, body), "cancellation")

    async def _post_to(self, node: int, body: str) -> None:
        # If there is no such node any more, there is nothing to cancel.
        with suppress(UnknownNodeError):
            await self._insist(partial(self.store.post_to, node, body))

    def elsewhere(self, node: CallNode) -> Observer | None:
        """Return an observer that posts commands, if this process does not run *node*."""
        is_here = any(self._source.drive_of(one.id) is not None for one in upwards(node))
        return None if is_here else self._observer

    def questions(self) -> list[Question]:
        """Return the open questions of all trees, whoever runs them, oldest first."""
        stored = self._observer.questions()
        known = {question.id for question in stored}
        # A question that was just asked may not be written yet.
        local = self._board.questions()
        return stored + [question for question in local if question.id not in known]

    def answer(self, id: str, text: str, args: Mapping[str, Any] | None) -> None:
        """Answer a question of any tree; the process that runs the tree settles it."""
        local = [one for one in self._board.questions() if one.id == id]
        if local and local[0].key == QuestionKey.Journal:
            self._board.answer(id, text, args)
            return
        if local:
            # Others must be able to see it, so that one answer wins.
            self._recovery.journal.flush()
        self._observer.answer(id, text, args=args)
        self._commands.wake()

    # News of the store

    def _own(self, root: CallNode) -> None:
        """Note a tree that was started here, until it ends."""
        journal = root.tree.journal
        if isinstance(journal, DriveJournal) and root.id not in self._runs:
            journal.drive.on_refused = partial(self._post, self._lose, root.id)
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
                self._spawn(self._release_over(), "releases")

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
            await self._insist(partial(self._release_all, written))

    def _release_all(self, over: Iterable[Ownership]) -> bool:
        for ownership in over:
            if not self.store.release(ownership, parked=True):
                # There are messages for it: the sweep finds somebody who executes them.
                self.store.release(ownership, parked=False)
        return True

    def _hear(self, trees: Collection[int]) -> None:
        """Note that trees have changed, in a thread of the store."""
        if not trees or not set(trees).isdisjoint(self._source.owned()):
            self._commands.wake()
        self._post(self.follower.hear, frozenset(trees))

    def _obey(self, orders: Orders) -> None:
        for node in orders.lost:
            self._lose(node)
        if orders.messages:
            self._commands.wake()
        if orders.drain and not self._dispatcher.stopping.is_set():
            log.warning("this worker was asked to stop")
            self._dispatcher.stop()

    def _die(self, error: FencedError) -> None:
        """Stop everything, and work no more: others run the trees of this worker."""
        log.error("this worker stops what it runs: %s", error)
        self._death = error
        self._dispatcher.stop()
        for node in self._source.owned():
            self._lose(node)

    def _lose(self, node: int) -> None:
        """Stop running a tree that another worker has adopted; nothing of that is recorded."""
        drive, root = self._source.drive_of(node), self._engine.loaded(node)
        if drive is None or root is None:
            return
        self._lost.add(node)
        drive.refusal = drive.refusal or FencedError(
            self.store.name, f"another worker runs tree {root.tree.id} now; attach to watch it"
        )
        journal = root.tree.journal
        assert isinstance(journal, DriveJournal)  # it is owned
        journal.close()
        run = self._runs.get(node)
        if run is not None:
            run.is_leaving = True
            run.rested.set()
        self._spawn(self._unload_lost(journal, root), f"loss of tree {root.tree.id}")

    async def _unload_lost(self, journal: DriveJournal, root: CallNode) -> None:
        """Remove a tree from memory; should no other worker have it, one may take it."""
        ownership = journal.drive.ownership
        await self._unload(journal, root)
        if ownership is not None:
            await self._insist(partial(self.store.release, ownership, parked=False))

    def _begin_commands(self, node: int) -> bool:
        if (run := self._runs.get(node)) is not None:
            return run.begin_commands()
        # A tree that was started here is not given up; one that is being adopted is not loaded yet.
        return node not in self._taking and self._source.drive_of(node) is not None

    def _end_commands(self, node: int) -> None:
        if (run := self._runs.get(node)) is not None:
            run.end_commands()

    def _may_forget(self, node: int) -> bool:
        return node not in self._lost

    # What others see of it

    def _load(self) -> Load:
        running = sum(not run.rested.is_set() for run in tuple(self._runs.values()))
        waiting = len(self._runs) - running
        return Load(
            running=running,
            waiting=waiting,
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
