"""The trees of a shared store that this process runs: adopted, attended, given up, lost."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final, Protocol

from treefold.core.address import address
from treefold.core.agent_events import NoticeGiven
from treefold.core.cluster import Ownership
from treefold.core.commands import AnswerQuestion, CancelCall, PauseCall, ResumeCall, read_command
from treefold.core.errors import ClosedError, FencedError, InvalidValueError, StoreError
from treefold.core.events import Event, StopCause
from treefold.core.question import Question, QuestionKind
from treefold.core.store import Message, Store
from treefold.core.work_engine import Taken
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import subtree
from treefold.runtime.cluster.command_reader import CommandReader
from treefold.runtime.cluster.dispatcher import Dispatcher
from treefold.runtime.cluster.follower import Follower
from treefold.runtime.cluster.insisting import RETRY, insist
from treefold.runtime.cluster.pauses_above import PausesAbove
from treefold.runtime.cluster.remote_calls import RemoteCalls, is_remote
from treefold.runtime.cluster.run import Run
from treefold.runtime.durable.drive_journal import DriveJournal
from treefold.runtime.durable.id_block import BLOCK
from treefold.runtime.durable.inbox import IsComplete
from treefold.runtime.durable.shared_trees import SharedTrees
from treefold.runtime.durable.tree_reader import TreeReader
from treefold.runtime.durable.worker_settings import WorkerSettings
from treefold.runtime.engine import Engine
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.questions.pauses import pause_node
from treefold.runtime.readiness import accept_import, hold_back, lift
from treefold.runtime.recovery import Recovery
from treefold.runtime.trees.run_log import name_of

log = logging.getLogger(__name__)

GRACE: Final = 5.0  # seconds for the last round trips to the store and the engine
_SOON: Final = 0.05  # seconds until what keeps a tree here for a moment is over
_ELSEWHERE: Final = "it is run elsewhere"


class Host(Protocol):
    """What the runs need of their worker."""

    @property
    def settings(self) -> WorkerSettings: ...

    @property
    def commands(self) -> CommandReader: ...

    @property
    def follower(self) -> Follower: ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start a task, which is cancelled when the worker stops."""
        ...

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call *function* on the loop, from any thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What was read of a drive: the events and open questions of its tree.

    Attributes:
        messages: commands that were posted while it had no owner.
        journal: records what happens from here on.
        was_killed: whether its last owner died.
    """

    events: list[Event]
    questions: list[Question]
    messages: list[Message]
    journal: DriveJournal
    was_killed: bool


class Runs:
    """Adopts trees that the work engine delivers, and gives them up again.

    It is used on the event loop.

    Attributes:
        lost: how many trees that ran here others have adopted.
        pauses_above: holds remote calls while calls above them are paused.
    """

    def __init__(
        self,
        store: Store,
        recovery: Recovery,
        engine: Engine,
        source: SharedTrees,
        remote_calls: RemoteCalls,
        dispatcher: Dispatcher,
        host: Host,
    ) -> None:
        self._store = store
        self._drives = source.cluster.drives
        self._recovery = recovery
        self._engine = engine
        self._registry = engine.registry
        self._source = source
        self._remote_calls = remote_calls
        self._dispatcher = dispatcher
        self._host = host
        self._runs: dict[int, Run] = {}
        self._taking: set[int] = set()
        self._unread: set[int] = set()  # drives that are being adopted, and are not in memory yet
        self.pauses_above = PausesAbove(store, host.settings.poll)
        self._disowned: set[int] = set()  # drives to be released: they were not resumed
        # Drives that other workers have adopted, until they are unloaded here.
        self._lost: set[int] = set()
        self._unloading: set[int] = set()  # drives that are being removed from memory
        self._commanded: int | None = None  # the drive whose commands are being executed
        self.lost = 0
        self._drain_until = math.inf  # in the time of the loop

    def __contains__(self, node: int) -> bool:
        return node in self._runs

    @property
    def running(self) -> int:
        """How many trees need a slot; from any thread."""
        return sum(not run.rested.is_set() for run in tuple(self._runs.values()))

    @property
    def waiting(self) -> int:
        """How many trees only wait; from any thread."""
        return len(self._runs) - self.running

    # Taking trees

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
            except (StoreError, ClosedError) as error:
                log.warning("node:%d is taken later: %s", node, error)
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
        self._lost.discard(node)
        self._unread.add(node)
        try:
            if (ownership := await self._own_drive(node)) is None:
                return Taken.Done
            try:
                return await self._resume(ownership)
            except BaseException:
                # Also after a cancellation: no other worker may adopt it before it is released.
                self._source.forget(node)
                self._disowned.add(node)
                self._host.spawn(self._disown(ownership), f"release of {node}")
                raise
        finally:
            self._unread.discard(node)
            if node not in self._runs:
                self._lost.discard(node)

    async def _own_drive(self, node: int) -> Ownership | None:
        """Become the owner of a drive, or learn that it is over or another worker has it.

        This takes until the store answers: it may have made this worker the owner and its answer
        may be lost, and no other worker would run the drive as long as this one lives.
        """
        was_refused = False
        while True:
            try:
                return await in_thread(self._drives.adopt, node, ids=BLOCK)
            except FencedError:
                raise
            except StoreError as error:
                if not was_refused:
                    log.warning("node:%d is taken later: %s", node, error)
                was_refused = True
                await asyncio.sleep(RETRY)

    async def _resume(self, ownership: Ownership) -> Run | Taken:
        self._check_kept(ownership.node)
        if (run := self._run_in_place(ownership)) is not None:
            return run
        read = await in_thread(self._read, ownership)
        self._check_kept(ownership.node)
        self._unread.discard(ownership.node)
        journal = read.journal
        journal.drive.on_refused = partial(self._host.post, self.lose, ownership.node)
        if is_remote(ownership):
            root = self._engine.load_call(ownership.tree, ownership.node, read.events, journal)
        else:
            root = self._engine.load(ownership.tree, read.events)
        try:
            return await self._begin(root, read, ownership)
        except BaseException:
            # It would be found, though nothing runs it.
            await self._unload(journal, root)
            raise

    async def _begin(self, root: CallNode, read: _Read, ownership: Ownership) -> Run | Taken:
        """Resume a tree that was loaded, or give it up because this process cannot run it."""
        journal = read.journal
        self._remote_calls.follow_loaded(root, journal)
        self._host.commands.forget(ownership.node)
        # A tree that was cancelled while it had no owner must not begin, nor wait for its function.
        self._execute_early(root, read.messages, CancelCall)
        self._resume_held_back(root, read.messages)
        is_over = root.is_concluded
        if not is_over and (why := self._recovery.why_held_back(root)):
            return await self._hold_back(root, why, ownership, journal)
        mine = {node.id for node in self._remote_calls.run_with(root)}
        for question in read.questions:
            if question.node_id in mine:
                self._recovery.take_over(question)
        run = self._new_run(journal, root, ownership)
        self.pauses_above.watch(run, read.questions)
        log.info("%s was taken", name_of(root.record))
        if not is_over:
            if is_remote(ownership):
                self._recovery.resume_call(root, was_killed=read.was_killed)
            else:
                self._recovery.resume(root, was_killed=read.was_killed)
            # Nothing has run yet, so no call is made before a pause is in force.
            self._execute_early(root, _until_lifted(root, read), PauseCall)
        self._host.commands.wake()
        self._host.spawn(self._attend(run), f"the drive of {address(root.path)}")
        return run

    def _check_kept(self, node: int) -> None:
        """Check that no other worker has adopted a drive before it was resumed here.

        Raises:
            FencedError: one has: what was read of the tree may be outdated.
        """
        if node in self._lost:
            raise FencedError(self._store.name, f"another worker has adopted node:{node}")

    async def _hold_back(
        self, root: CallNode, why: str, ownership: Ownership, journal: DriveJournal
    ) -> Taken:
        """Give up a tree that this process cannot run."""
        hold_back(root, why)
        await journal.saved(root)
        await self._unload(journal, root)
        # One that only a person lets run is not wanted again until there is a message for it.
        if not await in_thread(self._drives.release, ownership, parked=root.record.inert):
            await in_thread(self._drives.release, ownership, parked=False)
        return Taken.Later

    def _execute_early(
        self,
        root: CallNode,
        messages: Iterable[Message],
        kind: type[CancelCall | PauseCall],
    ) -> None:
        """Execute the commands of one kind for *root* that were posted before it was adopted.

        All others are executed as those that arrive later.
        """

        def root_has_ended() -> bool:
            return root.has_recorded_end

        for message in messages:
            is_complete: IsComplete | None = None
            with suppress(InvalidValueError):
                match read_command(message.body):
                    case CancelCall(root.id, reason, cause) if kind is CancelCall:
                        stop = cause if cause is StopCause.Abandoned else StopCause.Cancelled
                        root.cancel_on_loop(reason, cause=stop)
                        is_complete = root_has_ended
                    case PauseCall(root.id, reason, command) if kind is PauseCall:
                        pause_node(root, reason, command)
                    case _:
                        continue
                self._host.commands.note_executed(message.id, root.id, is_complete)

    def _resume_held_back(self, root: CallNode, messages: Iterable[Message]) -> None:
        """Execute the commands by which people let *root* run, before it is held back again."""
        if root.is_concluded:
            return  # they continue it in a fork, or come too late
        for message in messages:
            with suppress(InvalidValueError):
                match read_command(message.body):
                    case ResumeCall(root.id, without=names) if names:
                        lift(root, names)
                    case ResumeCall(root.id) if root.record.inert:
                        pass
                    case _:
                        continue
                accept_import(root)
                self._host.commands.note_executed(message.id, root.id)

    def _run_in_place(self, ownership: Ownership) -> Run | None:
        """Run a remote call whose caller this process runs, as part of that tree.

        If another worker has begun it, what that one has written has to be read first, and the
        questions that are open.
        """
        if ownership.written or (node := self._remote_calls.run_here(ownership.node)) is None:
            return None
        self._registry.add(node)
        journal = node.tree.journal
        assert isinstance(journal, DriveJournal)  # as in every shared store
        self._source.own_in_place(node.id, journal)
        run = self._new_run(journal, node, ownership)
        self._host.spawn(self._attend_in_place(run), f"the drive of {address(node.path)}")
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
        if not await insist(partial(self._drives.release, run.ownership, parked=is_over)):
            # A command for it is not deleted yet, or came too late.
            await insist(partial(self._drives.release, run.ownership, parked=False))
        run.over.set()

    def _new_run(self, journal: DriveJournal, node: CallNode, ownership: Ownership) -> Run:
        run = Run(journal, node, ownership, self._remote_calls)
        self._runs[run.node] = run
        return run

    def _read(self, ownership: Ownership) -> _Read:
        """Read a tree that was adopted, and prepare to write it; in a thread.

        Raises:
            ClosedError: nothing would be recorded any more.
        """
        # What other workers do in the tree of a remote call is not needed to run the call.
        around = ownership.node if is_remote(ownership) else None
        reader = TreeReader(self._store, ownership.tree, around=around)
        events = self._engine.restored(reader.read())
        journal = self._source.adopt(ownership, reader.numbers, reader.place)
        if journal.is_closed:
            raise ClosedError("the runtime is being closed")
        node = ownership.node
        # What comes from here on is read as for any other drive of this process.
        messages = list[Message]()
        if ownership.has_messages:
            messages = self._store.inbox(drives=[node], owned=True)
        return _Read(
            events=events,
            journal=journal,
            questions=self._store.pending(ownership.tree) if reader.has_asked else [],
            messages=messages,
            was_killed=ownership.attempts > 0,
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
            self.pauses_above.forget(run)
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
                async with asyncio.timeout(self._host.settings.poll):
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
        # The nodes that follow it are found from then on: no view goes back in time.
        is_known = await self._host.follower.catch_up(root.tree.id, journal.drive)
        # From here to the closing of the journal nothing is awaited.
        if not is_known or self._is_executing(run) or not run.is_idle or not journal.is_saved:
            self._look_again(root)
            return False
        if not root.has_ended and self._why_kept(run) is not None:
            return False
        run.is_leaving = True
        journal.leave()
        ownership, has_ended = run.ownership, root.has_ended
        release = partial(
            self._drives.release,
            ownership,
            parked=True,
            awaited=run.awaited(),
            wake_in=run.seconds_left(),
        )
        is_parked = await insist(release)
        if not is_parked and journal.reopen():
            # A message has arrived, and is executed here; or one was executed, and is not deleted
            # yet; or a remote call has ended.
            run.is_leaving = False
            self._host.commands.wake()
            self._host.follower.hear([root.tree.id])
            self._look_again(root)
            return False
        await self._unload(run.journal, run.root)
        if not has_ended:
            log.info("%s only waits, and was given up", name_of(root.record))
        if not is_parked:
            await insist(partial(self._drives.release, ownership, parked=False))
            self._dispatcher.sweep_soon()
        return True

    def _look_again(self, root: CallNode) -> None:
        """See soon whether a tree can be given up: what keeps it may end without an event."""
        root.loop_handle.loop.call_later(_SOON, root.tree.wake)

    def _why_kept(self, run: Run) -> str | None:
        """Return why a parked tree has to stay in this process, or None."""
        if len(self._sharing(run)) > 1:
            return "a remote call in it runs here, too"
        return run.why_kept()

    def _is_telling(self, run: Run) -> bool:
        """Whether people are just being told of a question in it."""
        telling = self._engine.services.board.telling
        nodes = subtree(run.root) if telling else ()
        return any(id in telling for node in nodes for id in node.record.questions or ())

    def _sharing(self, run: Run) -> list[Run]:
        """Return *run* and those of the remote calls that run as part of the same tree."""
        return [other for other in self._runs.values() if other.journal is run.journal]

    def _is_executing(self, run: Run) -> bool:
        """Whether commands are being executed that would be lost if *run* was given up.

        Or people are just being told of a question, which is recorded when they know.
        """
        return self._is_telling(run) or any(other.is_executing for other in self._sharing(run))

    def _give_notice(self, run: Run, why: str) -> None:
        text = f"it only waits, and stays in this process: {why}"
        root = run.root
        if not run.has_notice:
            run.has_notice = True
            root.tree.publish(NoticeGiven(root.id, text))

    async def _unload(self, journal: DriveJournal, root: CallNode) -> None:
        """Remove a tree from memory without recording anything."""
        self._unloading.add(root.id)
        try:
            await self._end_here(journal, root)
        finally:
            self._unloading.discard(root.id)

    async def _end_here(self, journal: DriveJournal, root: CallNode) -> None:
        own = self._remote_calls.run_with(root)
        _silence(journal, root)
        if root.parent is None:
            self._engine.keys.forget(root)
        self._registry.forget(root)
        root.tree.wake()
        if not root.has_ended:
            # Also if it is being cancelled: its end would not be recorded.
            root.cancel_on_loop(_ELSEWHERE, insist=True)
            await root.ended()
        for node in subtree(root):
            self._host.follower.forget(node)
        self._recovery.forget(root, own)
        # Nothing else would close them: the tree is not in memory any more.
        self._registry.close_bags(root)
        self._source.forget(root.id)
        # What is still in its inbox is executed by its next owner.
        self._host.commands.forget(root.id)

    async def _disown(self, ownership: Ownership) -> None:
        """Give up a drive that could not be resumed."""
        try:
            await insist(partial(self._drives.release, ownership, parked=False))
        finally:
            self._disowned.discard(ownership.node)

    async def drain(self, seconds: float) -> None:
        """Give up all trees, each as soon as nothing in it is under way that would be lost.

        After *seconds* the rest is given up all the same.
        """
        self._drain_until = asyncio.get_running_loop().time() + seconds
        everything = tuple(self._runs.values())
        # Calls that run as part of their tree are given up with it.
        runs = [run for run in everything if run.journal.drive.node == run.node]
        leaving = [self._host.spawn(self._leave(run), f"release of {run.node}") for run in runs]
        try:
            async with asyncio.timeout(seconds + GRACE):
                for run in everything:
                    await run.over.wait()
                # They are released after that.
                for task in leaving:
                    await asyncio.wait([task])
        except TimeoutError:
            log.warning("the store does not answer: others take these trees over later")

    async def abandon(self) -> None:
        """End what still runs here, and record nothing of that; the store need not answer.

        Nothing may wait for the trees that are left: a tree that is held waits for its next worker,
        and one that awaits a call of such a tree waits for that.
        """
        abandoned: list[asyncio.Task[None]] = []
        for run in tuple(self._runs.values()):
            # Calls that run as part of their tree are given up with it.
            if run.journal.drive.node != run.node:
                continue
            run.rested.set()
            _silence(run.journal, run.root)
            if run.is_leaving:
                # It is released, or unloaded, already.
                run.root.cancel_on_loop(_ELSEWHERE, insist=True)
            else:
                run.is_leaving = True
                unloading = self._host.spawn(
                    self._unload(run.journal, run.root), f"end of {run.node}"
                )
                abandoned.append(unloading)
                release = self._release_abandoned(run, unloading)
                self._host.spawn(release, f"release of {run.node}")
        if abandoned:
            await asyncio.wait(abandoned, timeout=GRACE)

    async def _release_abandoned(self, run: Run, unloading: "asyncio.Task[None]") -> None:
        """Let others have an abandoned tree once the store answers; else they have it later."""
        await asyncio.wait({unloading})
        await insist(partial(self._release_written, run.ownership))

    def _release_written(self, ownership: Ownership) -> bool:
        # What is written after a release would be refused.
        self._recovery.flush()
        return self._drives.release(ownership, parked=False)

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
                async with asyncio.timeout(self._host.settings.poll):
                    await run.over.wait()

    async def _quiet(self, run: Run) -> None:
        """Wait until nothing in the tree is under way that would be lost."""
        while not run.is_quiet and not run.root.has_ended and not run.is_leaving:
            await self._changed(run)

    async def _hand_over(self, run: Run) -> None:
        """Give a tree up, so that another worker continues it at once."""
        with suppress(FencedError):
            await run.journal.saved(run.root)
            await self._host.follower.catch_up(run.root.tree.id, run.journal.drive)
            # One that is never quiet must not have to be so for that long.
            await run.journal.saved(run.root)
        # From here to the closing of the journal nothing is awaited.
        if run.is_leaving or run.root.has_ended or self._is_executing(run):
            return
        if not run.journal.is_saved and not run.is_lost:
            return
        run.is_leaving = True
        ownership = run.ownership
        await self._unload(run.journal, run.root)
        await insist(partial(self._drives.release, ownership, parked=False))
        log.info("%s was handed over to other workers", name_of(run.root.record))

    # Trees that others have, and commands for those that run here

    def lose(self, node: int) -> None:
        """Stop running a tree that another worker has adopted; nothing of that is recorded."""
        if (run := self._runs.get(node)) is not None:
            # The tree of a call that runs as part of it cannot continue without the call.
            node = run.journal.drive.node
        if node in self._unread:
            # It is not resumed then. What there may be of it in memory only follows it.
            self._note_lost(node)
            return
        drive, root = self._source.drive_of(node), self._engine.loaded(node)
        # While it is unloaded, what is found may be the one that follows it.
        if drive is None or root is None or node in self._unloading:
            return
        self._unloading.add(node)
        self._note_lost(node)
        drive.refusal = drive.refusal or FencedError(
            self._store.name, f"another worker runs {address(root.path)} now; attach to watch it"
        )
        journal = root.tree.journal
        assert isinstance(journal, DriveJournal)  # it is owned
        journal.close()
        run = self._runs.get(node)
        if run is not None:
            run.is_leaving = True
            run.rested.set()
        self._host.spawn(self._unload_lost(journal, root), f"loss of tree {root.tree.id}")

    def _note_lost(self, node: int) -> None:
        if node not in self._lost:
            self._lost.add(node)
            self.lost += 1

    async def _unload_lost(self, journal: DriveJournal, root: CallNode) -> None:
        """Remove a tree from memory; should no other worker have it, one may take it."""
        ownership = journal.drive.ownership
        await self._unload(journal, root)
        if self._commanded != root.id:
            self._lost.discard(root.id)
        if ownership is not None:
            await insist(partial(self._drives.release, ownership, parked=False))

    def owned(self) -> list[int]:
        """Return the topmost nodes of all drives that this process owns; from any thread."""
        return self._source.owned()

    def begin_commands(self, node: int) -> bool:
        """Keep a tree here while commands are executed; False if it cannot be."""
        # One that is being adopted is not loaded yet.
        if node in self._taking or not self._source.is_recording(node):
            return False
        # A tree that was started here is not given up.
        if (run := self._runs.get(node)) is not None and not run.begin_commands():
            return False
        self._commanded = node
        return True

    def end_commands(self, node: int) -> None:
        """End what ``begin_commands`` began."""
        self._commanded = None
        if (run := self._runs.get(node)) is not None:
            run.end_commands()
        elif node in self._lost and self._source.drive_of(node) is None:
            # It was unloaded meanwhile.
            self._host.commands.forget(node)
            self._lost.discard(node)

    def may_forget(self, node: int) -> bool:
        """Whether the commands for a drive are done when they were executed here."""
        return node not in self._lost


def _silence(journal: DriveJournal, root: CallNode) -> None:
    """Let nothing more of a tree be recorded, or be seen here."""
    journal.close()
    # Before its calls are cancelled: that must not be seen, and is not what happens to them.
    if not root.has_ended:
        root.tree.freeze()


def _until_lifted(root: CallNode, read: _Read) -> list[Message]:
    """Return the messages before the first that may end a pause of *root*.

    A pause that was posted after that one must not be taken for the one that it ends.
    """
    paused = {
        one.id
        for one in read.questions
        if one.node_id == root.id and one.kind is QuestionKind.Paused
    }

    def lifts(message: Message) -> bool:
        with suppress(InvalidValueError):
            match read_command(message.body):
                case ResumeCall():
                    return True
                case AnswerQuestion(id):
                    return id in paused
                case _:
                    pass
        return False

    return list(takewhile(lambda message: not lifts(message), read.messages))
