"""One look at the journal for all who follow it: what there is now, about ten times a second.

Whoever follows takes a seat and is given the newest sight each time it is another one; sights that
it had no time for are skipped, so nothing is ever queued. Nobody looks while all seats are empty.
"""

import asyncio
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from anyio import to_thread

from treefold.core.errors import StoreError, TreefoldError, UnknownNodeError
from treefold.core.views import NodeView
from treefold.runtime.observer import Observer
from treefold.views.web.encoding import encoded
from treefold.views.web.listing import Listing

_EVERY: Final = 0.1  # seconds between two looks
_REST: Final = 9  # times as long as a look took, at least
_LONGEST: Final = 1.0  # seconds that nobody looks, however long it took
_OLDEST: Final = 2.0  # seconds after which the runs are listed again though nothing has happened

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sight:
    """What there was at one moment.

    Attributes:
        trees: all runs, as JSON; likewise ``questions``.
        view: of the tree that the seat is for.
    """

    trees: str
    questions: str
    view: NodeView | None


class Seat:
    """A place to look from: at one tree, or at the list of them alone."""

    def __init__(self, tree: int | None) -> None:
        self.tree = tree
        self._sight: Sight | None = None
        self._is_new = asyncio.Event()
        self._is_over = False

    async def next(self) -> Sight | None:
        """Wait for another sight than the last; None when there will be no more."""
        await self._is_new.wait()
        self._is_new.clear()
        return None if self._is_over else self._sight

    def show(self, sight: Sight) -> None:
        """Have whoever sits here see *sight*."""
        if self._sight is None or sight.view is not self._sight.view or sight != self._sight:
            self._sight = sight
            self._is_new.set()

    def end(self) -> None:
        """Say that there will be no more."""
        self._is_over = True
        self._is_new.set()


class _Trees:
    """The list of runs, which may be long: made when something has happened, and not too often."""

    def __init__(self, observer: Observer, listing: Listing) -> None:
        self._observer = observer
        self._listing = listing
        self._text = ""
        self._moment: object = None  # what the journal was like then
        self._rests_until = 0.0
        self._good_until = 0.0

    def read(self, questions: Sequence[Mapping[str, Any]]) -> str:
        """Return it as JSON, and whether somebody drives the journal."""
        start, driven = time.monotonic(), self._observer.is_driven
        moment = (self._observer.last(), driven, [question["id"] for question in questions])
        good = moment == self._moment and start < self._good_until
        if not good and start >= self._rests_until:
            self._text = encoded({"trees": self._listing.trees(questions), "driven": driven})
            self._moment = moment
            now = time.monotonic()
            self._rests_until, self._good_until = now + _REST * (now - start), now + _OLDEST
        return self._text


class Lookout:
    """Looks for all seats at once; ``run`` does, as a task of whoever serves."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._listing = Listing(observer)
        self._trees = _Trees(observer, self._listing)
        self._took = 0.0  # seconds for the last look, without the list of runs, which has its own
        self._seats: set[Seat] = set()
        self._is_wanted = asyncio.Event()  # somebody has just sat down
        self._is_closed = False
        self._is_empty = asyncio.Event()

    @contextmanager
    def seat(self, tree: int | None) -> Generator[Seat, None, None]:
        """Give a seat for as long as the context lasts."""
        seat = Seat(tree)
        self._seats.add(seat)
        self._is_wanted.set()
        if self._is_closed:
            seat.end()
        try:
            yield seat
        finally:
            self._seats.discard(seat)
            if not self._seats:
                self._is_empty.set()

    async def run(self) -> None:
        """Look until this is cancelled."""
        while True:
            if not self._seats:
                await self._is_wanted.wait()
            self._is_wanted.clear()
            await self._look()
            try:
                async with asyncio.timeout(min(_LONGEST, max(_EVERY, _REST * self._took))):
                    await self._is_wanted.wait()
            except TimeoutError:
                continue

    async def close(self, patience: float) -> None:
        """End what is seen from every seat, and wait until all are empty, but not for ever."""
        self._is_closed = True
        for seat in self._seats:
            seat.end()
        try:
            async with asyncio.timeout(patience):
                while self._seats:
                    self._is_empty.clear()
                    await self._is_empty.wait()
        except TimeoutError:
            return

    async def _look(self) -> None:
        seats = list(self._seats)
        trees = {seat.tree for seat in seats if seat.tree is not None}
        try:
            trees_now, questions, views = await to_thread.run_sync(self._read, trees)
        except Exception as error:  # whoever comes back asks himself, and is told
            log.warning("%s", error, exc_info=not isinstance(error, TreefoldError))
            for seat in seats:
                seat.end()
            return
        for seat in seats:
            if seat.tree is None:
                seat.show(Sight(trees_now, questions, None))
            elif seat.tree in views:
                seat.show(Sight(trees_now, questions, views[seat.tree]))
            else:
                seat.end()

    def _read(self, trees: set[int]) -> tuple[str, str, Mapping[int, NodeView]]:
        start = time.monotonic()
        views: dict[int, NodeView] = {}
        for tree in trees:
            try:
                views[tree] = self._observer.get_view(tree)
            except (UnknownNodeError, StoreError):  # it was deleted, or is damaged
                continue
        questions = self._listing.questions()
        asked = encoded({"questions": questions})
        self._took = time.monotonic() - start
        return self._trees.read(questions), asked, views
