"""Simulated workers on one store and one engine, and a model of what they should have done.

Whoever calls a method of ``Cluster`` has its lock, so that nothing is adopted meanwhile, and the
model is exact. What an engine delivers, and when, is up to the engine.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Final

from cluster.leases import connect
from cluster.simulated_drive import Drive, Hold
from cluster.simulated_worker import SimulatedWorker
from postgres_server import new_schema
from treefold.core.cluster import Ownership
from treefold.core.errors import FencedError
from treefold.core.fact import replace
from treefold.core.store import Batch, Entry
from treefold.core.work_engine import Ticket
from treefold.engines import Depth, Taken
from treefold.testing.store_suite import at_once, called, ended, noted

WORKERS: Final = 2
_CALLS: Final = 3  # remote calls of a tree, at most
_SWEEP: Final = 0.05  # seconds between two submits of what may be lost
_MOMENT: Final = 0.5  # seconds between two sweeps in the end
_LONGEST: Final = 30.0  # seconds until everything is over, on a busy machine


class Cluster:  # noqa: PLR0904 - one for each thing that may happen
    """Living and dead workers, and the drives that they have.

    Args:
        engine: the name of their engine.

    Attributes:
        changed: the lock; waiting for it waits until something may have been adopted.
        held: what living workers own.
        stale: what workers believe to own that have died, or have released it.
        drives: all that there ever were, by node.
        faults: what went wrong in the threads of workers.
        story: what has happened, for a test that fails.
    """

    def __init__(self, engine: str) -> None:
        self.changed = threading.Condition()
        self.held: list[Hold] = []
        self.stale: list[Hold] = []
        self.drives: dict[int, Drive] = {}
        self.faults: list[BaseException] = []
        self.story: list[str] = []
        self._engine = engine
        self._is_hostile = engine.startswith("hostile")
        self._is_temporal = engine.startswith("temporal")
        self._living: list[SimulatedWorker] = []
        self._frozen: list[SimulatedWorker] = []
        self._ending: list[SimulatedWorker] = []
        self._submitted: set[int] = set()  # what the engine has to deliver without another submit
        self._left = ExitStack()
        self._url = self._left.enter_context(new_schema())
        try:
            for _ in range(WORKERS):
                self._start_worker()
            # After the first worker, which creates the tables.
            self._database = self._left.enter_context(connect(self._url))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._left:
            for worker in (*self._living, *self._frozen, *self._ending):
                worker.cancel()
            for worker in (*self._living, *self._frozen, *self._ending):
                worker.close()

    # Workers

    def worker(self, number: int) -> SimulatedWorker:
        return self._living[number % len(self._living)]

    def crash(self, worker: SimulatedWorker, *, frozen: bool) -> None:
        """End the lease of a worker, and the worker, and have a new one take its place."""
        self._database.execute(
            "UPDATE workers SET lease = interval '0' WHERE id = %s", (worker.id,)
        )
        self.story.append(f"{worker} {'is stopped' if frozen else 'crashes'}")
        self._living.remove(worker)
        lost = [hold for hold in self.held if hold.worker is worker]
        self.held = [hold for hold in self.held if hold.worker is not worker]
        self.stale += lost
        if frozen:
            worker.freeze()
            self._frozen.append(worker)
        else:
            worker.cancel()
            self._ending.append(worker)
            # Its engine gives them back.
            self._submitted |= {hold.drive.node for hold in lost}
        self._start_worker()

    def thaw(self, number: int) -> None:
        """Have a worker continue that was stopped: it finds that it owns nothing, and ends."""
        if self._frozen:
            worker = self._frozen.pop(number % len(self._frozen))
            self.story.append(f"{worker} continues")
            for hold in self.stale:
                if hold.worker is worker and not hold.taken.done():
                    hold.taken.set_result(Taken.Done)
            worker.thaw()
            self._ending.append(worker)

    def _thaw_all(self) -> None:
        while self._frozen:
            self.thaw(0)

    def _start_worker(self) -> None:
        self._living.append(SimulatedWorker(self._url, self._engine, self._deliver))

    def _is_free(self, drive: Drive) -> bool:
        return drive.owner is None or drive.owner not in self._living

    # Deliveries, in the threads of the workers

    def _deliver(self, worker: SimulatedWorker, node: int) -> Taken | Future[Taken]:
        with self.changed:
            try:
                return self._adopt(worker, self.drives[node])
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
                self.faults.append(error)
                return Taken.Done
            finally:
                self.changed.notify_all()

    def _adopt(self, worker: SimulatedWorker, drive: Drive) -> Taken | Future[Taken]:
        if worker not in self._living:
            try:
                found = worker.store.cluster.drives.adopt(drive.node)
            except FencedError:
                return Taken.Later
            raise AssertionError(f"a dead worker has adopted {found}")
        self._submitted.discard(drive.node)
        if drive.owner is worker:
            return Taken.Done  # it runs here
        found = worker.store.cluster.drives.adopt(drive.node)
        if not self._is_free(drive):
            assert found is None, f"{found} was adopted though {drive.owner} has it"
            return Taken.Done
        if drive.over and not drive.messages:
            assert found is None, f"{found} was adopted though it is over"
            self._give_up(drive, wanted=False)
            return Taken.Done
        drive.owner, drive.wanted = worker, True
        drive.epoch += 1
        owned = Ownership(drive.node, drive.tree, drive.epoch, drive.entries)
        assert found == owned
        awaited = [call for call in drive.calls if not call.over]
        hold = Hold(worker, drive, owned, drive.entries, drive.number, awaited)
        self.held.append(hold)
        self.story.append(f"{hold} is adopted")
        return hold.taken

    # Trees and calls

    def create(self, number: int) -> Drive:
        """Commit a tree that is owed, without submitting it."""
        store = self.worker(number).store
        node, _ = store.cluster.drives.reserve(1 + _CALLS, 1)
        batch = Batch(ownership=None, entries=[called(node)], tickets=[Ticket(node=node)])
        assert store.append([batch]) == [1]
        drive = self.drives[node] = Drive(node, node)
        self.story.append(f"tree {node} is created")
        return drive

    def call_remotely(self, hold: Hold) -> Drive | None:
        """Commit a call that is a drive of its own, without submitting it."""
        drive = hold.drive
        used = [one.node for one in self.drives.values() if one.tree == drive.tree]
        if drive.over or len(used) > _CALLS:
            return None
        node = max(used) + 1
        entry = called(node, tree=drive.tree, parent=drive.node)
        assert self._append(hold, [entry], tickets=[Ticket(node=node)])
        call = self.drives[node] = Drive(node, drive.tree, caller=drive, entries=0)
        drive.calls.append(call)
        hold.awaited.append(call)
        self.story.append(f"{hold} calls {node}")
        return call

    def submit(self, number: int, drive: Drive) -> None:
        """Have the engine of a living worker deliver a drive."""
        if drive.wanted and self._is_free(drive):
            self._submitted.add(drive.node)
        self.story.append(f"{drive.node} is submitted to {self.worker(number)}")
        self.worker(number).submit(Ticket(node=drive.node))

    def sweep(self, number: int) -> None:
        """Submit what is owed, unless the engine has to deliver it anyway."""
        for ticket in self.worker(number).store.cluster.drives.owed(99):
            if ticket.node not in self._submitted:
                self.submit(number, self.drives[ticket.node])

    def wait_for_deliveries(self, seconds: float) -> None:
        """Wait until the engine has delivered all that it has to, but not longer than that.

        It is submitted again if it may be lost: by an engine that is hostile, or, for a while, by a
        worker that is stopped.
        """
        end = time.monotonic() + seconds
        while not self.faults and self._submitted and time.monotonic() < end:
            self.changed.wait(_SWEEP)
            if self._is_hostile or self._frozen:
                for number, node in enumerate(sorted(self._submitted)):
                    self.submit(number, self.drives[node])

    # Writing

    def write(self, hold: Hold, count: int, *, ends: bool = False, again: bool = False) -> bool:
        """Append entries, *again* as after a lost reply; return whether they are accepted."""
        entries = self._entries(hold, count)
        if ends and hold.drive.may_end:
            entries[-1] = ended(hold.drive.node, entries[-1].number, tree=hold.drive.tree)
        return self._append(hold, entries, again=again)

    def write_at_once(self, node: int) -> None:
        """Have all workers write that believe, or ever believed, to own a drive."""
        holds = [hold for hold in (*self.held, *self.stale[-6:]) if hold.drive.node == node]
        batches = [self._batch(hold, self._entries(hold, 1)) for hold in holds]
        if holds:
            outcomes = at_once([
                _writing(hold, batch) for hold, batch in zip(holds, batches, strict=True)
            ])
            for hold, batch, [outcome] in zip(holds, batches, outcomes, strict=True):
                self._note_outcome(hold, batch, outcome)

    def _entries(self, hold: Hold, count: int) -> list[Entry]:
        node, tree = hold.drive.node, hold.drive.tree
        return [noted(node, hold.number + n, tree=tree) for n in range(1, count + 1)]

    def _batch(self, hold: Hold, entries: Sequence[Entry], tickets: Sequence[Ticket] = ()) -> Batch:
        return Batch(ownership=hold.owned, entries=entries, written=hold.entries, tickets=tickets)

    def _append(
        self,
        hold: Hold,
        entries: Sequence[Entry],
        *,
        tickets: Sequence[Ticket] = (),
        again: bool = False,
    ) -> bool:
        batch = self._batch(hold, entries, tickets)
        outcomes = [hold.worker.store.append([batch])[0] for _ in range(1 + again)]
        assert len({type(outcome) for outcome in outcomes}) == 1
        return self._note_outcome(hold, batch, outcomes[0])

    def _note_outcome(self, hold: Hold, batch: Batch, outcome: int | FencedError) -> bool:
        is_accepted = isinstance(outcome, int)
        kinds = [entry.state.value if entry.state else entry.kind for entry in batch.entries]
        self.story.append(f"{hold} writes {kinds}: {'accepted' if is_accepted else 'refused'}")
        assert is_accepted is hold.is_right, f"{hold}: {outcome}"
        if is_accepted:
            drive = hold.drive
            hold.entries += len(batch.entries)
            hold.number += sum(entry.node == drive.node for entry in batch.entries)
            drive.entries, drive.number = hold.entries, hold.number
            drive.over = drive.over or any(_is_end(entry) for entry in batch.entries)
        return is_accepted

    # Releasing

    def release(self, hold: Hold, *, parked: bool, taken: Taken = Taken.Done) -> bool:
        """Release a drive, and end its delivery; False if there is news for it."""
        drive = hold.drive
        has_news = bool(drive.messages) or any(call.over for call in hold.awaited)
        [released] = _releasing(hold, parked=parked)()
        self.story.append(f"{hold} is released, {parked=}, {taken}: {released}")
        assert released is not (hold.is_right and parked and has_news)
        self._note_release(hold, released=released, parked=parked, taken=taken)
        return released

    def _note_release(
        self, hold: Hold, *, released: bool, parked: bool, taken: Taken = Taken.Done
    ) -> None:
        drive = hold.drive
        # Its owner sees them now, and does not wait for them any more.
        hold.awaited = [call for call in hold.awaited if not call.over]
        if released:
            if hold.is_right:
                self._give_up(drive, wanted=bool(drive.messages) or not (parked or drive.over))
            if hold in self.held:
                self.held.remove(hold)
                self.stale.append(hold)
                if taken is Taken.Later and drive.wanted:
                    self._submitted.add(drive.node)
                hold.taken.set_result(taken)

    def _give_up(self, drive: Drive, *, wanted: bool) -> None:
        drive.owner, drive.wanted = None, wanted
        caller = drive.caller
        if drive.over and caller is not None and caller.owner is None and not caller.over:
            caller.wanted = True

    def park_while_a_call_ends(self, hold: Hold, call: Hold, message: str) -> None:
        """Release a caller, end its call, and post a message for the caller, if any, at once."""
        drive = call.drive
        batch = self._batch(call, [ended(drive.node, call.number + 1, tree=drive.tree)])
        has_news = bool(hold.drive.messages) or any(one.over for one in hold.awaited)
        store = self._living[0].store

        def end() -> list[Any]:
            return [*_writing(call, batch)(), *_releasing(call, parked=False)()]

        def post() -> list[Any]:
            return [store.post(message, node=hold.drive.node)] if message else []

        [released], [outcome, is_over], _ = at_once([_releasing(hold, parked=True), end, post])
        self.story.append(f"{hold} is parked while {call} ends, {message!r}: {released}")
        assert is_over
        self._note_outcome(call, batch, outcome)
        assert not (has_news and released), f"{hold} was parked though there was news"
        if message:
            hold.drive.messages.append(message)
        # Before the call is released: if its caller is parked by now, that has to wake it.
        self._note_release(hold, released=released, parked=True)
        self._note_release(call, released=True, parked=False)

    # Messages

    def post(self, number: int, drive: Drive, body: str) -> None:
        assert self.worker(number).store.post(body, node=drive.node)
        self.story.append(f"{body} is posted")
        drive.messages.append(body)
        drive.wanted = True

    def handle(self, hold: Hold, *, interrupted: bool = False) -> None:
        """Handle the oldest message: its effect is written, and then it is done.

        If that is *interrupted*, it is not done: whoever handles it next finds its effect.
        """
        store, drive = hold.worker.store, hold.drive
        messages = store.inbox(drives=[drive.node], owned=True)
        assert [message.body for message in messages] == drive.messages
        if not messages:
            return
        oldest = messages[0]
        handled = [entry.body for entry in store.entries(drive.tree) if entry.kind == "Handled"]
        if oldest.body not in handled:
            [entry] = self._entries(hold, 1)
            assert self._append(hold, [replace(entry, kind="Handled", body=oldest.body)])
        if not interrupted:
            store.done(oldest.id)
            del drive.messages[0]
            self.story.append(f"{hold} has handled {oldest.body}")

    def handle_late(self, hold: Hold) -> None:
        """Have a worker say that it has handled the messages of a drive that another one owns."""
        store, drive = hold.worker.store, hold.drive
        if drive.owner not in {None, hold.worker}:
            assert store.inbox(drives=[drive.node], owned=True) == []
            messages = [one for one in store.inbox() if one.body in drive.messages]
            for message in messages:
                store.done(message.id)
            assert [one for one in store.inbox() if one.body in drive.messages] == messages

    # What must hold

    def check(self, drives: Sequence[Drive]) -> set[int]:
        """Compare the store with the model of *drives*, the others being over.

        Returns:
            What is owed.
        """
        if self.faults:
            raise self.faults[0]
        store = self._living[0].store
        owed = {ticket.node for ticket in store.cluster.drives.owed(99)}
        assert owed == {one.node for one in drives if one.wanted and self._is_free(one)}
        for tree in {drive.tree for drive in drives}:
            seqs = [entry.seq for entry in store.entries(tree)]
            count = sum(drive.entries for drive in drives if drive.tree == tree)
            assert seqs == list(range(1, count + 1))
        return owed

    def finish(self, drives: Sequence[Drive]) -> None:
        """Have workers bring all *drives* to their end, as the engine delivers what is swept."""
        if self._is_temporal:
            # The threads of the SDK poll on while the loop is stopped, and whatever they get is
            # delivered to others a lease later: as often as this worker has slots.
            self._thaw_all()
        end = time.monotonic() + _LONGEST
        number = 0
        while True:
            for hold in self.held[:]:
                self._finish(hold)
            owed = self.check(drives)
            if not self.held and not owed:
                break
            assert time.monotonic() < end, f"still owed: {sorted(owed)}"
            number += 1
            self.sweep(number)
            self.wait_for_deliveries(_MOMENT)
        not_over = [drive.node for drive in drives if not drive.over or drive.messages]
        assert not not_over, f"nothing is owed, but {not_over} are not over"

    def _finish(self, hold: Hold) -> None:
        if hold.drive.messages or any(call.over for call in hold.awaited):
            assert not self.release(hold, parked=True)
        while hold.drive.messages:
            self.handle(hold)
        if hold.drive.may_end:
            self.write(hold, 1, ends=True)
        self.release(hold, parked=not hold.drive.over)

    def check_ends(self, drives: Sequence[Drive], posted: Sequence[str]) -> None:
        """Check that all *drives* have ended once, and all messages were handled once."""
        store = self._living[0].store
        entries = [entry for tree in {one.tree for one in drives} for entry in store.entries(tree)]
        ends = [entry.node for entry in entries if _is_end(entry)]
        assert sorted(ends) == sorted(drive.node for drive in drives)
        handled = [entry.body for entry in entries if entry.kind == "Handled"]
        assert sorted(handled) == sorted(posted)
        assert store.inbox() == []
        assert not any(row.open for row in store.trees())

    def settle(self) -> None:
        """Have stopped workers end, and wait until the engine has no delivery left."""
        self._thaw_all()
        self.stale.clear()
        end = time.monotonic() + _LONGEST
        while any(worker.depth() != Depth() for worker in self._living):
            assert time.monotonic() < end, f"{self._living[0].depth()} is left"
            self.changed.wait(_SWEEP)
        for worker in [worker for worker in self._ending if worker.has_ended]:
            self._ending.remove(worker)
            worker.close()


def _is_end(entry: Entry) -> bool:
    return entry.state is not None and entry.state.final


def _writing(hold: Hold, batch: Batch) -> Callable[[], list[Any]]:
    return lambda: list(hold.worker.store.append([batch]))


def _releasing(hold: Hold, *, parked: bool) -> Callable[[], list[Any]]:
    awaited = [call.node for call in hold.awaited]
    drives = hold.worker.store.cluster.drives
    return lambda: [drives.release(hold.owned, parked=parked, awaited=awaited)]
