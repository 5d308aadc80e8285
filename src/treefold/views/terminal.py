"""A run as a live tree at the bottom of a terminal.

Follows a watch, and knows nothing of who drives the run. Where nothing can be drawn in place (no
terminal, a dumb one, no ``rich``) the tree is printed once, as text, when it has ended.
"""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cached_property
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import Final, Self, TextIO

from treefold.core.views import NodeView
from treefold.runtime.watch import Watch
from treefold.views.canvas import Canvas, rows_of
from treefold.views.folding import Census
from treefold.views.text import SIGNS, render

TICK: Final = 0.5  # seconds; the timeout of a watch that is followed, so that times go on

_REDRAWS: Final = 1 / 8  # seconds between two frames, at least
_LOOKS_EVERY: Final = 0.02  # seconds
_REST: Final = 10  # times as long as drawing took
_LONGEST: Final = 200  # lines of a tree that has ended: they are there to be scrolled
_HINT: Final = "(pip install 'treefold[terminal]' shows the tree while it grows)"


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

    def show(self, view: NodeView, *, spare: int = 0) -> None:
        """Show *view* instead of the one before it, and leave *spare* rows of the screen below."""
        view = view if self._seen is None else self._seen(view)
        if self.is_live:
            self._draw(view, spare)
        elif view.state.final:
            self._stream.write(f"{render(view, width=get_terminal_size().columns)}\n")
            if _can_draw(self._stream):
                self._stream.write(f"{_HINT}\n")
            self._stream.flush()

    @contextmanager
    def aside(self) -> Generator["Aside"]:
        """Use the terminal below the tree; what is shown then stays, and the tree goes on below."""
        self._stack.close()
        aside = Aside(self, self._canvas, self._canvas.leave(), self._stream)
        try:
            with self._canvas.printed_by_others(aside.stop) if self.is_live else nullcontext():
                yield aside
        finally:
            self.__enter__()

    def _draw(self, view: NodeView, spare: int) -> None:
        columns, lines = self._canvas.size
        rows = max(lines, _LONGEST) if view.state.final else max(2, lines - 1 - spare)
        self._canvas.draw(*self.frame(view, columns - 1, rows))
        if view.state.final:
            self._canvas.leave()

    def frame(self, view: NodeView, columns: int, rows: int) -> tuple[list[str], list[int]]:
        """Return *view* as lines for the terminal, and their widths."""
        from treefold.views.frame import escapes, framed, line_width  # noqa: PLC0415 - it needs rich

        start = time.perf_counter()
        frame = framed(view, columns, rows, datetime.now(UTC), self._census)
        coloured = not os.environ.get("NO_COLOR")
        drawn = [escapes(line, coloured=coloured) for line in frame]
        self._took = time.perf_counter() - start
        return drawn, [line_width(line) for line in frame]


class Aside:
    """The terminal below a tree: what is said there, while the tree above it goes on moving.

    Args:
        tree: draws the frames.
        canvas: what they are drawn on.
        rows: how many rows the tree has on the screen.
        stream: where to say something.
    """

    def __init__(self, tree: LiveTree, canvas: Canvas, rows: int, stream: TextIO) -> None:
        self._tree = tree
        self._canvas = canvas
        self._rows = rows if tree.is_live else 0  # 0: it does not move
        self._stream = stream
        self._below = 0  # rows between the tree and the cursor
        self._next = 0.0  # when it is drawn again

    def say(self, text: str) -> None:
        """Print *text*, whole lines."""
        if self._rows:
            from treefold.views.frame import cell_len  # noqa: PLC0415 - it needs rich

            columns = self._canvas.size[0]
            self._below += sum(rows_of(cell_len(line), columns) for line in text.split("\n"))
        print(text, file=self._stream, flush=True)

    @contextmanager
    def typing(self, prompt: str) -> Generator[None]:
        """Print *prompt* for a line that is typed while the block lasts, and ended by then."""
        print(prompt, end="", file=self._stream, flush=True)
        with self._canvas.typing() if self._rows else nullcontext():
            yield
        self._below += 1

    def end_line(self) -> None:
        """End the line of a prompt that nothing was typed at."""
        print(file=self._stream, flush=True)

    def move(self, view: Callable[[], NodeView]) -> None:
        """Draw the tree again, as *view* gives it, unless that was just done."""
        if not self._rows or time.monotonic() < self._next:
            return
        began = time.monotonic()
        lines, _ = self._tree.frame(view(), self._canvas.size[0] - 1, self._rows)
        self._canvas.draw_above(lines, self._rows, self._below)
        took = time.monotonic() - began
        self._next = began + max(TICK, _REST * took)

    def stop(self) -> None:
        """Move no longer: others print here, and where the cursor is then is not known."""
        self._rows = 0


def _can_draw(stream: TextIO) -> bool:
    """Whether *stream* is a terminal on which lines can be drawn again."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown", ""}:
        return False
    try:
        "".join(SIGNS.values()).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
