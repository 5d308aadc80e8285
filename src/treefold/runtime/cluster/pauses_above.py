"""Holds remote calls while a call above them is paused, which another process may run."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from treefold.core.errors import ClosedError, StoreError
from treefold.core.question import Question, QuestionKey, QuestionKind
from treefold.core.store import Store
from treefold.runtime.calls.walk import upwards
from treefold.runtime.cluster.remote_calls import is_remote
from treefold.runtime.cluster.run import Run
from treefold.runtime.loops.threads import in_thread
from treefold.runtime.questions.pauses import Pause

log = logging.getLogger(__name__)

_SOON: Final = 0.05  # seconds, in which a call goes on whose pause is over


class PausesAbove:
    """Looks in the store, now and then, for pauses of the calls above those that run here apart.

    It is used on the event loop.

    Args:
        interval: seconds between two looks.
    """

    def __init__(self, store: Store, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._held: dict[Run, dict[int, Pause]] = {}  # by the calls above that are paused
        self._places: dict[int, int] = {}  # how far the trees were when they were looked at

    def watch(self, run: Run, questions: Iterable[Question]) -> None:
        """Hold a remote call as the open *questions* of its tree say, and as later ones do."""
        if is_remote(run.ownership):
            self._held[run] = {}
            self._apply(run, questions)

    def forget(self, run: Run) -> None:
        """Look for no more pauses: this process does not run the call any more."""
        if self._held.pop(run, None) is not None:
            trees = {one.ownership.tree for one in self._held}
            self._places = {id: at for id, at in self._places.items() if id in trees}

    async def run(self) -> None:
        """Look until this is cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._look()
            except (StoreError, ClosedError) as error:
                log.debug("the pauses above remote calls cannot be looked at: %s", error)

    async def _look(self) -> None:
        trees = tuple({run.ownership.tree for run in self._held})
        places = await in_thread(self._store.places, trees) if trees else {}
        for id, place in places.items():
            if self._places.get(id) == place:
                continue
            questions = await in_thread(self._store.pending, id)
            for run in tuple(self._held):
                if run.ownership.tree == id:
                    self._apply(run, questions)
                    # What was asked since the place was read is looked at again.
                    self._places[id] = place

    def _apply(self, run: Run, questions: Iterable[Question]) -> None:
        """Begin and end the pauses of the calls above *run*."""
        held, above = self._held[run], {node.id: node for node in upwards(run.root)[1:]}
        paused = {
            one.node_id: one.text
            for one in questions
            if one.kind is QuestionKind.Paused
            and one.key == QuestionKey.Hold
            and one.node_id in above
        }
        for id in held.keys() - paused.keys():
            held.pop(id).lift()
        for id in paused.keys() - held.keys():
            held[id] = Pause(above[id], paused[id])
        if held:
            run.is_held_above = True
        elif run.is_held_above:
            # It goes on in a moment, and must not be taken until then for one that only waits.
            run.root.loop_handle.loop.call_later(_SOON, self._let_go, run)

    def _let_go(self, run: Run) -> None:
        run.is_held_above = bool(self._held.get(run))
        run.root.tree.wake()
