"""Watches: wait for the next view of a node."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, Protocol

from treefold.core.views import NodeView

_REST = 10  # times the duration of the last view


class ViewSource(Protocol):
    """A tree that makes views: a Tree, or an ObservedTree."""

    def view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id."""
        ...

    def on_next_event(self, wake: Callable[[], None]) -> None:
        """Call *wake* once, when something may have happened."""
        ...

    def forget(self, wake: Callable[[], None]) -> None:
        """Remove a callback added with ``on_next_event``."""
        ...


class BlockingWait(Protocol):
    """How a thread blocks until it is woken: a LoopHandle, or a Poll."""

    def refuse_blocking(self, what: str) -> None:
        """Raise BlockingCallError in a thread where blocking would be a deadlock."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Block this thread until *event* is set; return False after *timeout*."""
        ...


class Watch:
    """The next view of a node, and those after it.

    ``await watch`` in any loop or ``watch.result()`` in any thread returns the next view;
    ``async for view in watch`` or ``for view in watch`` yields views until the node has ended.
    Views in between are skipped if the consumer is slower than the run. Once the node has ended,
    its last view is returned at once.

    Making a view takes time in proportion to what changed, and to the number of siblings. An
    iteration sleeps ten times as long after each view, so that even a watcher on the run's own loop
    does not slow the run down.
    """

    def __init__(
        self,
        loop_handle: BlockingWait,
        tree: ViewSource,
        id: int,
        *,
        as_of_seq: int,
        timeout: float | None,
    ) -> None:
        self._loop_handle = loop_handle
        self._tree = tree
        self._id = id
        self._seen = as_of_seq
        self._timeout = timeout
        self._took = 0.0  # seconds to make the last view
        self._last: NodeView | None = None  # the last one returned

    def result(self) -> NodeView:
        """Block until there is a newer view, and return it.

        Raises:
            TimeoutError: nothing happened within the timeout.
            BlockingCallError: called on the runtime's own loop; use ``await``.
        """
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        woken = threading.Event()
        while (view := self._newer()) is None:
            self._tree.on_next_event(woken.set)
            try:
                if (view := self._newer()) is not None:
                    break
                left = None if deadline is None else deadline - time.monotonic()
                self._loop_handle.refuse_blocking("watch().result()")
                if not self._loop_handle.wait(woken, left):
                    raise TimeoutError(self._nothing_new())
            finally:
                self._tree.forget(woken.set)
            woken.clear()
        return self._take(view)

    def __await__(self) -> Generator[Any, None, NodeView]:
        return self._next().__await__()

    def __iter__(self) -> Iterator[NodeView]:
        while True:
            view = self.result()
            yield view
            if view.state.final:
                return
            time.sleep(_REST * self._took)

    async def __aiter__(self) -> AsyncIterator[NodeView]:
        import asyncio  # noqa: PLC0415 - slow, and commands that read one view do not need it

        while True:
            view = await self
            yield view
            if view.state.final:
                return
            await asyncio.sleep(_REST * self._took)

    async def _next(self) -> NodeView:
        import asyncio  # noqa: PLC0415 - as above

        from treefold.runtime.loops.loop_handle import threadsafe_resolver  # noqa: PLC0415 - imports asyncio

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                while (view := self._newer()) is None:
                    changed = loop.create_future()
                    wake = threadsafe_resolver(changed)
                    self._tree.on_next_event(wake)
                    try:
                        if (view := self._newer()) is not None:
                            break
                        await changed
                    finally:
                        self._tree.forget(wake)
        except TimeoutError:
            raise TimeoutError(self._nothing_new()) from None
        return self._take(view)

    def _newer(self) -> NodeView | None:
        start = time.perf_counter()
        view = self._tree.view(self._id)
        self._took = time.perf_counter() - start
        new = view.update_seqnum > self._seen or (self._last is not None and view is not self._last)
        return view if new or view.state.final else None

    def _take(self, view: NodeView) -> NodeView:
        self._seen, self._last = view.update_seqnum, view
        return view

    def _nothing_new(self) -> str:
        return f"nothing happened to node {self._id} in {self._timeout} s"
