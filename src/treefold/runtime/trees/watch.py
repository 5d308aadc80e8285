"""Watches: wait for the next view of a node."""

import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Protocol

from treefold.core.views import NodeView
from treefold.runtime.trees.waiting import BlockingWait, ChangeSource, await_next, wait_for

_REST = 10  # times the duration of the last view


class ViewSource(ChangeSource, Protocol):
    """A tree that makes views: a Tree, or an ObservedTree."""

    def view(self, id: int) -> NodeView:
        """Return a snapshot of the node with this id."""
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
        view = wait_for(
            self._newer,
            self._tree,
            self._loop_handle,
            node=self._id,
            timeout=self._timeout,
            what="watch().result()",
            instead="write 'await' instead",
        )
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
        async def find() -> NodeView | None:
            return self._newer()

        view = await await_next(find, self._tree, node=self._id, seconds=self._timeout)
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
