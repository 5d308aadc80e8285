"""The events of a call and of all calls below it: those of the past, and then each new one."""

import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from treefold.core.agent_events import ResponseStreamed
from treefold.core.arriving import ArrivingResponse
from treefold.core.errors import InvalidValueError
from treefold.core.events import (
    CallEnded,
    CallInherited,
    CallReopened,
    CallRequested,
    Event,
    TreeForked,
    set_number,
)
from treefold.runtime.trees.tree import Tree
from treefold.runtime.trees.waiting import BlockingWait, ChangeSource, await_next, wait_for

_REOPENS = (CallInherited, CallReopened, TreeForked)


class EventSource(ChangeSource, Protocol):
    """Reads the events of one tree, each once, from a journal or from memory."""

    reads_a_store: ClassVar[bool]  # and so may take long

    def read(self) -> tuple[list[Event], Mapping[int, ArrivingResponse]]:
        """Return the events since the last time, and the arriving responses by node."""
        ...


class TreeEvents:
    """Reads the events of a tree that has no journal."""

    reads_a_store: ClassVar[bool] = False

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._read = 0
        self.on_next_event = tree.on_next_event
        self.forget = tree.forget

    def read(self) -> tuple[list[Event], Mapping[int, ArrivingResponse]]:
        """Return the events since the last time, and the arriving responses by node."""
        events, arriving = self._tree.read_events(self._read)
        self._read += len(events)
        return events, arriving


class StreamedCall(ChangeSource, Protocol):
    """A call of this process, whose end can be waited for."""

    @property
    def has_ended(self) -> bool:
        """Whether it has its outcome."""
        ...


class _Shown(NamedTuple):
    """The part of an arriving response that a stream has returned."""

    response: ArrivingResponse
    fragments: int
    characters: int
    output: Any


class EventStream:
    """The events of a call and of all calls below it, until it has ended.

    Iterate over it with ``for`` in any thread or ``async for`` on any event loop, or call ``read``.
    Every event is returned once and none is skipped, however slow the reader is: events are read
    from the tree or its journal, not from a queue, so a slow reader delays no call. It has in
    memory what happened between its last two reads. A stream is for one reader; if its iteration is
    broken off, the next one continues it.

    The last events are returned when the call has ended in this process, too: then its state is
    final, and it can be deleted.

    Texts and typed results that are still arriving are returned as ``ResponseStreamed``; whatever
    arrived between two reads is one such event.

    Args:
        source: the events of the tree.
        blocking: how a thread waits.
        node: the id of the call.
        after: the number of the last event that is known already.
        timeout: how many seconds an iteration waits for the next event.
        call: the call itself, if this process has it.

    Raises:
        InvalidValueError: *after* is not a number.

    Example:
        >>> from treefold import CodeFunction, Runtime
        >>> async def double(ctx, n: int) -> int:
        ...     return 2 * n
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(CodeFunction(callable=double), {"n": 21})
        ...     for event in runtime.events(node):
        ...         print(event.number, type(event).__name__)
        1 CallRequested
        2 CallStarted
        3 CallEnded
    """

    def __init__(
        self,
        source: EventSource,
        blocking: BlockingWait,
        node: int,
        *,
        after: int,
        timeout: float | None,
        call: StreamedCall | None = None,
    ) -> None:
        # The number in an HTTP header or a query string is a text, which would fail much later.
        if not isinstance(after, int):
            raise InvalidValueError(
                f"after={after!r}: give the number of an event as an int, 0 for all events"
            )
        self._source = source
        self._blocking = blocking
        self._node = node
        self._after = after
        self._timeout = timeout
        self._call = call
        self._below = {node}  # the call and all calls below it
        self._number = 0  # of the last event that was read
        self._has_ended = False
        self._shown: dict[int, _Shown] = {}  # by node
        self._unreturned: deque[Event] = deque()  # events that were read
        # A reading thread continues when the task that waits for it is cancelled.
        self._reading = threading.Lock()

    def read(self) -> list[Event]:
        """Return the events since the last one that was returned, without waiting for more."""
        self._read()
        # One by one: a thread whose task was cancelled may still be adding some.
        return [self._unreturned.popleft() for _ in range(len(self._unreturned))]

    def __iter__(self) -> Iterator[Event]:
        while True:
            if self._has_ended and self._call is not None:
                self._wait(self._is_over, self._call)
            while self._unreturned:
                yield self._unreturned.popleft()
            if self._has_ended:
                return
            self._wait(self._read, self._source)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            if self._has_ended and self._call is not None:
                await self._next(self._is_over_async, self._call)
            while self._unreturned:
                yield self._unreturned.popleft()
            if self._has_ended:
                return
            await self._next(self._read_aside, self._source)

    def _wait(self, find: Callable[[], bool | None], source: ChangeSource) -> None:
        wait_for(
            find,
            source,
            self._blocking,
            node=self._node,
            timeout=self._timeout,
            what="'for' over events()",
            instead="write 'async for' instead",
        )

    async def _next(self, find: Callable[[], Awaitable[bool | None]], source: ChangeSource) -> None:
        await await_next(find, source, node=self._node, seconds=self._timeout)

    def _is_over(self) -> bool | None:
        return self._call is None or self._call.has_ended or None

    async def _is_over_async(self) -> bool | None:
        return self._is_over()

    def _read(self) -> bool | None:
        """Read what is new; return True if that is something, or if nothing more will come."""
        with self._reading:
            events, arriving = self._source.read()
            self._unreturned += [event for event in events if self._takes(event)]
            self._unreturned += self._streamed(arriving)
            return bool(self._unreturned) or self._has_ended or None

    async def _read_aside(self) -> bool | None:
        """Read what is new without blocking the event loop."""
        if not self._source.reads_a_store:
            return self._read()
        import asyncio  # noqa: PLC0415 - slow, and commands that only read do not need it

        return await asyncio.to_thread(self._read)

    def _takes(self, event: Event) -> bool:
        """Note *event*; return whether it belongs to the stream."""
        self._number = event.number
        if isinstance(event, CallRequested) and event.parent in self._below:
            self._below.add(event.node)
        if event.node == self._node:
            if isinstance(event, CallEnded):
                self._has_ended = True
            elif isinstance(event, _REOPENS):
                self._has_ended = False
        return event.number > self._after and event.node in self._below

    def _streamed(self, arriving: Mapping[int, ArrivingResponse]) -> list[Event]:
        """Return what has arrived of each response since the last time."""
        shown, self._shown = self._shown, {}
        events: list[Event] = []
        for node, response in arriving.items():
            if node not in self._below:
                continue
            before = shown.get(node)
            is_new = before is None or before.response is not response
            known = _Shown(response, 0, 0, None) if before is None or is_new else before
            texts, output = response.texts[known.fragments :], response.output
            text = "".join(texts)
            # A new response may have no text yet: then the text before it was thinking.
            if text or output is not known.output or (is_new and before is not None):
                event = ResponseStreamed(node, known.characters, text, output)
                set_number(event, self._number)
                events.append(event)
            self._shown[node] = _Shown(
                response, known.fragments + len(texts), known.characters + len(text), output
            )
        return events
