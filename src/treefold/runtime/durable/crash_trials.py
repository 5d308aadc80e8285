"""Resumes trees whose process has died, so that a tree that kills it does not do so for ever.

Each tree records the deaths since its last progress. From the second death on such trees are
started one after another, so that a tree that kills its process at once does not count against the
others; after the fifth a person decides. Progress is anything that need not be done again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from treefold.core.call_request import CallRequest, Gate
from treefold.core.events import (
    CallEnded,
    Event,
    ProcessDied,
    QuestionAsked,
    QuestionSettled,
    TreeResumed,
)
from treefold.core.function import RunContext
from treefold.core.question import QuestionKey, QuestionKind
from treefold.runtime.calls.node import CallNode
from treefold.runtime.calls.walk import is_parked, subtree
from treefold.runtime.loops.loop_handle import threadsafe_resolver
from treefold.runtime.questions.ask import ask_to_resume

MOST_DEATHS: Final = 5
_SUSPICIOUS: Final = 2  # deaths from which on a tree waits for its turn
_TURN: Final = 2.0  # seconds after which the next tree starts at the latest
_ALL_TURNS: Final = 30.0  # seconds after which all have started, however many there are
_WHY: Final = (
    f"the process died at least {MOST_DEATHS} times while this ran, and nothing was finished in"
    " between: this may be what kills it; resume tries it once more, cancel ends it"
)


def last_death(events: Sequence[Event]) -> ProcessDied | None:
    """Return the last ProcessDied in *events*, if the tree has made no progress since."""
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        if isinstance(event, ProcessDied):
            return None if _is_progress(events[:place], events[place + 1 :]) else event
    return None


def _is_progress(before: Sequence[Event], since: Sequence[Event]) -> bool:
    """Whether anything *since* would not happen again if the tree were resumed once more."""
    pauses = {
        event.question.id
        for event in (*before, *since)
        if isinstance(event, QuestionAsked) and event.question.kind is QuestionKind.Paused
    }
    # A call whose result cannot be restored runs again each time, and ends again.
    ended = {event.node for event in before if isinstance(event, CallEnded)}
    for event in since:
        match event:
            case CallEnded():
                new = event.node not in ended
            case QuestionAsked():
                new = event.question.id not in pauses
            case QuestionSettled():
                new = event.id not in pauses and event.answer is not None
            case _:
                new = not event.repeated
        if new:
            return True
    return False


class CrashTrials:
    """Decides when each tree of an earlier process is started."""

    def __init__(self) -> None:
        self._counted: set[int] = set()  # trees
        self._waiting: list[_Suspect] = []
        self._current: _Suspect | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn = _TURN
        self._recovering = True

    def admit(self, root: CallNode, request: CallRequest, *, was_killed: bool) -> None:
        """Count the death of its last driver, if it died, against a tree that is to be resumed.

        Publishes that another process resumes it, which says from when to when none did.
        """
        death = root.tree.last_death
        deaths = was_killed + (0 if death is None else death.deaths)
        if root.id in self._counted:
            return
        if not deaths:
            if root.record.started is not None:
                _publish_with_next(root, TreeResumed(root.id, root.tree.now()))
            return
        self._counted.add(root.id)
        if deaths < _SUSPICIOUS:
            root.tree.publish(ProcessDied(root.id, root.tree.now(), deaths))
            return
        suspect = _Suspect(root, deaths, request.gate, 0.0 if death is None else death.at)
        if not suspect.is_paused:
            self._waiting.append(suspect)
        request.gate = suspect.gate
        if not self._recovering:
            self.begin()

    def begin(self) -> None:
        """Start the trees now that all are admitted, the most suspicious one last.

        At most one is newly paused: the others may only have run at the same time.
        """
        self._recovering = False
        self._waiting.sort(key=lambda suspect: (suspect.deaths, suspect.tried_at))
        if self._waiting and self._waiting[-1].deaths >= MOST_DEATHS:
            self._waiting.pop().release(first_ask=True)
        self._turn = min(_TURN, _ALL_TURNS / max(1, len(self._waiting)))
        if self._current is None:
            self._next()

    def _next(self) -> None:
        self._stop()
        self._waiting = [one for one in self._waiting if not one.root.has_ended]
        if self._waiting:
            self._current = suspect = self._waiting.pop(0)
            suspect.release()
            root = suspect.root
            self._timer = root.loop_handle.loop.call_later(self._turn, self._next)
            self._watch(suspect, _done(root))

    def _watch(self, suspect: "_Suspect", done: tuple[int, int]) -> None:
        """Start the next tree as soon as this one has made progress, has ended or is parked."""
        root = suspect.root
        if self._current is not suspect:
            return
        if root.has_ended or is_parked(root) or _done(root) != done:
            self._next()
            return
        changed = root.loop_handle.loop.create_future()
        changed.add_done_callback(lambda _: self._watch(suspect, done))
        root.tree.on_next_event(threadsafe_resolver(changed))

    def _stop(self) -> None:
        self._current = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self, root: CallNode) -> None:
        """Forget a tree that this process does not run any more."""
        self._counted.discard(root.id)
        self._waiting = [one for one in self._waiting if one.root is not root]

    def close(self) -> None:
        """Start no more trees."""
        self._waiting.clear()
        self._stop()


class _Suspect:
    """A tree that was resumed before and made no progress."""

    def __init__(self, root: CallNode, deaths: int, gate: Gate | None, tried_at: float) -> None:
        self.root = root
        self.deaths = deaths
        self.tried_at = tried_at
        self._gate = gate
        self._first_ask = False
        self._turn: asyncio.Future[None] = root.loop_handle.loop.create_future()
        asked = (root.record.questions or {}).values()
        self.is_paused = any(question.kind is QuestionKind.Paused for question in asked)
        if self.is_paused:
            # It needs no turn: its gate asks the person again.
            self.release()

    def release(self, *, first_ask: bool = False) -> None:
        """Let the tree start; with *first_ask*, after a person has agreed."""
        self._first_ask = first_ask
        if not self._turn.done():
            self._turn.set_result(None)

    async def gate(self, context: RunContext) -> Mapping[str, Any]:
        """Wait for the turn of the tree, then for the original gate of its call."""
        await self._turn
        root = self.root
        if self._first_ask:
            await ask_to_resume(root, _WHY, QuestionKey.Crashes)
        args = root.inputs if self._gate is None else await self._gate(context)
        root.tree.publish(ProcessDied(root.id, root.tree.now(), self.deaths))
        return args


def _publish_with_next(root: CallNode, event: Event) -> None:
    """Publish *event* after the next event of the tree, unless that ends it.

    Alone it would have to be saved before the tree continues.
    """

    def publish() -> None:
        if not root.is_concluded:
            root.tree.publish(event)

    root.tree.on_next_event(publish)


def _done(root: CallNode) -> tuple[int, int]:
    """Return the number of calls in the tree, and of those that have ended."""
    nodes = subtree(root)
    return len(nodes), sum(node.has_ended for node in nodes)
