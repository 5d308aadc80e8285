"""A run as a live tree at the bottom of a terminal.

Follows a watch, and knows nothing of who drives the run. Where nothing can be drawn in place (no
terminal, a dumb one, no ``rich``) the tree is printed once, as text, when it has ended.
"""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import Final, Self, TextIO

from ramify.core.views import NodeView
from ramify.runtime.watch import Watch
from ramify.views.canvas import Canvas
from ramify.views.folding import Census
from ramify.views.text import SIGNS, render

TICK: Final = 0.5  # seconds; the timeout of a watch that is followed, so that times go on

_REDRAWS: Final = 1 / 8  # seconds between two frames, at least
_LOOKS_EVERY: Final = 0.02  # seconds
_REST: Final = 10  # times as long as drawing took
_LONGEST: Final = 200  # lines of a tree that has ended: they are there to be scrolled
_HINT: Final = "(pip install 'ramify[terminal]' shows the tree while it grows)"


def follow(
    watch: Watch,
    stream: TextIO | None = None,
    seen: Callable[[NodeView], NodeView] | None = None,
) -> NodeView:
    """Show what *watch* sees on *stream*, stderr if none, until it has ended; return the last view.

    The watch should have a timeout of ``TICK``: ``runtime.watch(node, timeout=TICK)``. What is
    shown of a view is what *seen* makes of it each time.
    """
    with LiveTree(stream, seen) as tree:
        *_, last = tree.follow(watch)
    return last


class LiveTree:
    """A tree on a terminal, for as long as the ``with`` block lasts.

    Args:
        stream: where to; stderr by default.
        seen: gives what is to be shown of a view, if that is not all.
    """

    def __init__(
        self, stream: TextIO | None = None, seen: Callable[[NodeView], NodeView] | None = None
    ) -> None:
        self._seen = seen
        self._stream = sys.stderr if stream is None else stream
        self._canvas = Canvas(self._stream)
        self._census = Census()
        self._took = 0.0  # seconds to draw the last frame
        self._stack = ExitStack()

    @cached_property
    def is_live(self) -> bool:
        """Whether the tree can be drawn while it grows."""
        return _can_draw(self._stream) and find_spec("rich") is not None

    def __enter__(self) -> Self:
        if self.is_live:
            self._stack.enter_context(self._canvas.printed_above())
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def follow(self, watch: Watch, is_over: Callable[[], bool] | None = None) -> Iterator[NodeView]:
        """Show each view of *watch*, and yield it then, until the last.

        *is_over* says at once when the call has ended, so that the last one need not wait.
        """
        view: NodeView | None = None
        while view is None or not view.state.final:
            try:
                for view in watch:
                    self.show(view)
                    yield view
                    if self.is_live and not view.state.final:
                        self._rest(is_over)
            except TimeoutError:  # nothing has happened but that time goes by
                if view is not None:
                    self.show(view)

    def _rest(self, is_over: Callable[[], bool] | None) -> None:
        end = time.monotonic() + max(_REDRAWS, _REST * self._took)
        while (left := end - time.monotonic()) > 0 and not (is_over is not None and is_over()):
            time.sleep(min(left, _LOOKS_EVERY))

    def show(self, view: NodeView) -> None:
        """Show *view* instead of the one before it."""
        view = view if self._seen is None else self._seen(view)
        if self.is_live:
            self._draw(view)
        elif view.state.final:
            self._stream.write(f"{render(view, width=get_terminal_size().columns)}\n")
            if _can_draw(self._stream):
                self._stream.write(f"{_HINT}\n")
            self._stream.flush()

    @contextmanager
    def aside(self) -> Generator[None]:
        """Let somebody use the terminal; what is shown stays, and the tree goes on below."""
        self._stack.close()
        self._canvas.leave()
        try:
            yield
        finally:
            self.__enter__()

    def _draw(self, view: NodeView) -> None:
        from ramify.views.frame import escapes, framed, line_width  # noqa: PLC0415 - it needs rich

        start = time.perf_counter()
        columns, lines = self._canvas.size
        rows = max(lines, _LONGEST) if view.state.final else lines - 1
        frame = framed(view, columns - 1, rows, datetime.now(UTC), self._census)
        coloured = not os.environ.get("NO_COLOR")
        drawn = [escapes(line, coloured=coloured) for line in frame]
        self._canvas.draw(drawn, [line_width(line) for line in frame])
        if view.state.final:
            self._canvas.leave()
        self._took = time.perf_counter() - start


def _can_draw(stream: TextIO) -> bool:
    """Whether *stream* is a terminal on which lines can be drawn again."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown", ""}:
        return False
    try:
        "".join(SIGNS.values()).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
