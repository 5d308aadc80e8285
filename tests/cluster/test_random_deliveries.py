"""Random deliveries, entries, releases, messages, remote calls and crashes, on every engine.

Workers adopt what a real engine delivers, or the hostile one. A model says what each call of the
store must return, and what is owed; in the end everything is brought to its end by what the engine
delivers. What an engine does is not repeatable, so an example may fail once, and not again.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from cluster.simulated_cluster import Cluster
from cluster.simulated_drive import Drive
from treefold.engines import Taken
from work_engines import EXHAUSTIVE

T = TypeVar("T")

_EXAMPLES: Final = 1500 if EXHAUSTIVE else 20
_SECONDS: Final = 600.0 if EXHAUSTIVE else 2.0  # for each engine; then examples do nothing
_TREES: Final = 3  # in one example
_MOMENT: Final = 0.3  # seconds for deliveries, before the next thing happens

ANY = st.integers(0, 5)  # which of those that there are


class Deliveries(RuleBasedStateMachine):  # noqa: PLR0904 - as many rules
    """What happens to workers on one cluster, which examples share as long as they pass.

    No strategy and no precondition depends on what was delivered: where there is nothing to do
    something with, a rule does nothing.
    """

    def __init__(self, clusters: "Clusters") -> None:
        super().__init__()
        self.clusters = clusters
        self.cluster = clusters.current()
        self.cluster.story.clear()
        self.failed = False
        self.is_late = time.monotonic() > clusters.end
        self.drives: list[Drive] = []
        self.posted: list[str] = []

    @contextmanager
    def _alone(self) -> Generator[Cluster]:
        """Have nothing be adopted meanwhile."""
        try:
            with self.cluster.changed:
                yield self.cluster
        except BaseException as error:
            self.failed = True
            self.clusters.give_up(error)
            raise

    @initialize(calls=st.integers(0, 2), posts=st.booleans())
    def begin(self, calls: int, *, posts: bool) -> None:
        """Have something to begin with, so that what follows finds it."""
        for number in range(2):
            self.start_a_tree(number, submits=True, waits=True)
        for number in range(calls):
            # The second one is made by the first.
            self.call_remotely(2 * number, submits=True, waits=True)
        if posts:
            self.post(0, 0, submits=False)

    def _submit(self, worker: int, drive: Drive, *, submits: bool, waits: bool) -> None:
        self.drives.append(drive)
        if submits:
            self.cluster.submit(worker, drive)
        if waits:
            self.cluster.wait_for_deliveries(_MOMENT)

    @rule(worker=ANY, submits=st.booleans(), waits=st.booleans())
    def start_a_tree(self, worker: int, *, submits: bool, waits: bool) -> None:
        """Commit a tree, and submit it, unless the process ends in between."""
        with self._alone() as cluster:
            trees = sum(drive.caller is None for drive in self.drives)
            if trees < _TREES and not self.is_late:
                self._submit(worker, cluster.create(worker), submits=submits, waits=waits)

    @rule(hold=ANY, submits=st.booleans(), waits=st.booleans())
    def call_remotely(self, hold: int, *, submits: bool, waits: bool) -> None:
        """Commit a call that any worker may run, and submit it, unless the process ends."""
        with self._alone() as cluster:
            if (found := pick(cluster.held, hold)) and (call := cluster.call_remotely(found)):
                self._submit(hold, call, submits=submits, waits=waits)

    @rule(hold=ANY, count=st.integers(1, 3), ends=st.booleans(), again=st.booleans())
    def append(self, hold: int, count: int, *, ends: bool, again: bool) -> None:
        with self._alone() as cluster:
            if found := pick(cluster.held, hold):
                cluster.write(found, count, ends=ends, again=again)

    @rule(hold=ANY, parked=st.booleans())
    def release(self, hold: int, *, parked: bool) -> None:
        with self._alone() as cluster:
            if found := pick(cluster.held, hold):
                cluster.release(found, parked=parked)

    @rule(hold=ANY)
    def put_off(self, hold: int) -> None:
        """Release a drive that this worker cannot run."""
        with self._alone() as cluster:
            if found := pick(cluster.held, hold):
                cluster.release(found, parked=False, taken=Taken.Later)

    @rule(hold=ANY, posts=st.booleans())
    def park_while_a_call_ends(self, hold: int, *, posts: bool) -> None:
        with self._alone() as cluster:
            holds = {one.drive: one for one in cluster.held}
            pairs = [
                (one, holds[call])
                for one in cluster.held
                for call in one.awaited
                if call in holds and call.may_end
            ]
            if found := pick(pairs, hold):
                caller, call = found
                message = self._message(caller.drive) if posts else ""
                cluster.park_while_a_call_ends(caller, call, message)

    def _message(self, drive: Drive) -> str:
        self.posted.append(f"message {len(self.posted)} for {drive.node}")
        return self.posted[-1]

    @rule(drive=ANY, worker=ANY, submits=st.booleans())
    def post(self, drive: int, worker: int, *, submits: bool) -> None:
        """Post a message for a drive in any state, and submit the drive, which may be running."""
        with self._alone() as cluster:
            if found := pick(self.drives, drive):
                cluster.post(worker, found, self._message(found))
                if submits:
                    cluster.submit(worker, found)

    @rule(hold=ANY, interrupted=st.booleans())
    def handle_a_message(self, hold: int, *, interrupted: bool) -> None:
        with self._alone() as cluster:
            if found := pick(cluster.held, hold):
                cluster.handle(found, interrupted=interrupted)

    @rule(worker=ANY, frozen=st.booleans())
    def crash(self, worker: int, *, frozen: bool) -> None:
        with self._alone() as cluster:
            if self.drives:
                cluster.crash(cluster.worker(worker), frozen=frozen)

    @rule(hold=ANY, parks=st.booleans(), frozen=st.booleans())
    def end_a_call_and_crash(self, hold: int, *, parks: bool, frozen: bool) -> None:
        """Have a worker die after the last entry of a call, and before the call is released."""
        with self._alone() as cluster:
            calls = [one for one in cluster.held if one.drive.caller and one.drive.may_end]
            if found := pick(calls, hold):
                for caller in [one for one in cluster.held if one.drive is found.drive.caller]:
                    if parks:
                        cluster.release(caller, parked=True)
                cluster.write(found, 1, ends=True)
                cluster.crash(found.worker, frozen=frozen)

    @rule(worker=ANY)
    def thaw(self, worker: int) -> None:
        with self._alone() as cluster:
            cluster.thaw(worker)

    @rule(hold=ANY)
    def write_late(self, hold: int) -> None:
        """Have a worker write that has died, or has released the drive."""
        with self._alone() as cluster:
            if found := pick(cluster.stale, hold):
                cluster.write(found, 1)

    @rule(hold=ANY, parked=st.booleans())
    def release_late(self, hold: int, *, parked: bool) -> None:
        with self._alone() as cluster:
            if found := pick(cluster.stale, hold):
                cluster.release(found, parked=parked)

    @rule(hold=ANY)
    def handle_late(self, hold: int) -> None:
        with self._alone() as cluster:
            if found := pick(cluster.stale, hold):
                cluster.handle_late(found)

    @rule(drive=ANY)
    def write_at_once(self, drive: int) -> None:
        with self._alone() as cluster:
            if found := pick(self.drives, drive):
                cluster.write_at_once(found.node)

    @rule(worker=ANY, waits=st.booleans())
    def sweep(self, worker: int, *, waits: bool) -> None:
        with self._alone() as cluster:
            if self.drives:
                cluster.sweep(worker)
            if waits:
                cluster.wait_for_deliveries(_MOMENT)

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        with self._alone() as cluster:
            if self.drives:
                cluster.check(self.drives)

    def teardown(self) -> None:
        if self.drives and not self.failed:
            with self._alone() as cluster:
                for number, drive in enumerate(self.drives):
                    # Other parked drives wait for their calls, whose end must wake them.
                    if drive.may_end and not drive.wanted:
                        cluster.post(number, drive, self._message(drive))
                cluster.finish(self.drives)
                cluster.check_ends(self.drives, self.posted)
                cluster.settle()


def pick(those: Sequence[T], number: int) -> T | None:
    return those[number % len(those)] if those else None


class Clusters:
    """The cluster of one engine: a new one if something went wrong in the last.

    Attributes:
        end: when there is no time left for more.
        fault: the first thing that went wrong.
    """

    def __init__(self, engine: str) -> None:
        self.end = time.monotonic() + _SECONDS
        self.fault: BaseException | None = None
        self._engine = engine
        self._current: Cluster | None = None

    def current(self) -> Cluster:
        """Return a cluster that works, in which nothing runs."""
        if self._current is None:
            self._current = Cluster(self._engine)
        return self._current

    def give_up(self, error: BaseException) -> None:
        """Use the current cluster no more."""
        if self._current is not None:
            error.add_note("\n".join(self._current.story))
            self.fault = self.fault or error
        self.close()

    def close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.close()


# The engines use it in their threads, for intervals, whatever is being drawn meanwhile.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
def test_whatever_happens_all_trees_end_once_and_no_wake_up_is_lost(engine: str):
    clusters = Clusters(engine)
    try:
        run_state_machine_as_test(
            cast("type[Deliveries]", partial(Deliveries, clusters)),
            settings=settings(
                max_examples=_EXAMPLES,
                stateful_step_count=40,
                deadline=None,
                # What is shrunk would have to fail again.
                phases=[Phase.generate],
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    except Flaky:
        # What did not fail again is told by what happened when it did.
        assert clusters.fault is not None
        raise clusters.fault from None
    finally:
        clusters.close()
