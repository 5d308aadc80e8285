"""``show``: wait for a call, and show its tree while it grows, in a notebook or on a terminal.

The caller waits for the call itself, so it is cancelled, raises and returns as with ``await node``;
a timer of the loop redraws the tree meanwhile. Nothing is left when the wait ends, in whatever way.
"""

import asyncio
import math
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Generic

from treefold.core.errors import ClosedError, InvalidValueError
from treefold.core.function import Node, R_co
from treefold.core.views import NodeView
from treefold.runtime.calls.node import CallNode
from treefold.views.notebook import to_html
from treefold.views.terminal import LiveTree
from treefold.views.text import render

_INTERVAL: Final = 0.5  # seconds between two redraws, at least
_IDLE_FACTOR: Final = 10  # nothing is drawn for this many times as long as drawing took

Draw = Callable[[NodeView], None]


def show(node: Node[R_co]) -> "Showing[R_co]":
    """Wait for *node* as ``await node`` does, and show its tree meanwhile.

    ``await show(node)`` returns the result of the call; ``show(node).result()`` does so where no
    event loop runs. In a notebook the tree is below the cell and folds when the call has ended; on
    a terminal it is drawn on stderr.

    Example:
        >>> import asyncio
        >>> from treefold import Runtime, registries, show, tool
        >>> async def main():
        ...     with registries():
        ...         @tool
        ...         async def double(n: int) -> int:
        ...             return 2 * n
        ...         async with Runtime() as runtime:
        ...             return await show(runtime.invoke(double, {"n": 21}))
        >>> asyncio.run(main())
        42
    """
    if not isinstance(node, CallNode):
        raise InvalidValueError(f"show() takes a node, such as runtime.invoke(...), got {node!r}")
    return Showing(node)


class Showing(Generic[R_co]):
    """A wait for a node that shows its tree: await it, or call ``result``."""

    def __init__(self, node: CallNode) -> None:
        self._node = node
        self._took = 0.0  # seconds for the last drawing
        self._is_complete = False  # whether the last view is on the screen

    def __repr__(self) -> str:
        return f"<show({self._node!r}): await it, or call its result()>"

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._wait().__await__()

    def result(self, timeout: float | None = None) -> R_co:
        """Block until the call has ended; return its value or raise its exception.

        Raises:
            TimeoutError: it has not ended within *timeout* seconds; it continues to run.
            BlockingCallError: called on the loop that runs it; use ``await``.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._screen() as draw:
            while not self._node.state.final:
                self._redraw(draw)
                left = math.inf if deadline is None else deadline - time.monotonic()
                try:
                    return self._node.result(min(self._pause, max(0.0, left)))
                except TimeoutError:
                    if left <= 0 and not self._node.state.final:
                        raise
            return self._node.result()

    async def _wait(self) -> R_co:
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def tick(draw: Draw) -> None:
            nonlocal timer
            self._redraw(draw)
            timer = loop.call_later(self._pause, tick, draw)

        with self._screen() as draw:
            tick(draw)
            try:
                return await self._node
            finally:
                if timer is not None:
                    timer.cancel()

    @property
    def _pause(self) -> float:
        return max(_INTERVAL, _IDLE_FACTOR * self._took)

    def _redraw(self, draw: Draw) -> None:
        if self._is_complete:
            return
        began = time.perf_counter()
        view = self._node.tree.view(self._node.id)
        draw(view)
        self._is_complete = view.state.final
        self._took = time.perf_counter() - began

    @contextmanager
    def _screen(self) -> Generator[Draw]:
        """Return a function that draws a view, and draw the last one at the end of the block."""
        self._is_complete = False
        display = _notebook_display()
        with _on_terminal() if display is None else _in_cell(display, self._node) as draw:
            try:
                yield draw
            finally:
                self._redraw(draw)
                if display is not None and not self._is_complete:
                    self._redraw_at_end(draw)

    def _redraw_at_end(self, draw: Draw) -> None:
        """Draw the tree once more when the call ends: it may just be being cancelled."""
        with suppress(ClosedError):
            redraw = partial(self._redraw, draw)
            self._node.loop_handle.run_soon(self._node.add_end_callback, redraw)


@contextmanager
def _on_terminal() -> Generator[Draw]:
    with LiveTree() as tree:
        yield tree.show


@contextmanager
def _in_cell(display: Callable[..., Any], node: CallNode) -> Generator[Draw]:
    journal = node.tree.journal
    path = None if journal is None else journal.path
    handle: Any = None

    def draw(view: NodeView) -> None:
        nonlocal handle
        html = to_html(view, live=not view.state.final, path=path)
        bundle = {"text/html": html, "text/plain": render(view)}
        if handle is None:
            handle = display(bundle, raw=True, display_id=True)
        else:
            handle.update(bundle, raw=True)

    yield draw


def _notebook_display() -> Callable[..., Any] | None:
    """Return the function that shows an object below the running cell; None outside notebooks."""
    # A program that runs in a notebook has imported it.
    ipython: Any = sys.modules.get("IPython")
    # IPython on a terminal has no kernel, and cannot replace what it has shown.
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        return None
    return ipython.display.display
