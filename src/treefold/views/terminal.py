"""Show a run as a live tree at the bottom of a terminal.

Iterates over a watch; the run may be in this process or another. Where lines cannot be redrawn (no
terminal, a dumb one, no ``rich``), the tree is printed once, as text, when the run has ended.
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
from treefold.runtime.trees.watch import Watch
from treefold.views.canvas import Canvas, row_count
from treefold.views.folding import CallCounter
from treefold.views.text import SIGNS, render

TICK: Final = 0.5  # seconds; the timeout of a watch, so that elapsed times are redrawn

_REDRAW_INTERVAL: Final = 1 / 8  # seconds between two redraws, at least
_POLL_INTERVAL: Final = 0.02  # seconds
_IDLE_FACTOR: Final = 10  # the terminal is left alone this many times as long as drawing took
_MOST_LINES: Final = 200  # of a tree that has ended: they can be scrolled back
_HINT: Final = "(pip install 'treefold[terminal]' shows the tree while it grows)"


def follow(
    watch: Watch,
    stream: TextIO | None = None,
    transform: Callable[[NodeView], NodeView] | None = None,
) -> NodeView:
    """Show the views of *watch* on *stream* (default: stderr) until its end; return the last one.

    The watch should have a timeout of ``TICK``: ``runtime.watch(node, timeout=TICK)``. Each view is
    passed through *transform* before it is shown.
    """
    with LiveTree(stream, transform) as tree:
        *_, last = tree.follow(watch)
    return last


class LiveTree:
    """A tree on a terminal, for as long as the ``with`` block lasts.

    Args:
        stream: the terminal; stderr by default.
        transform: is applied to each view before it is shown.
    """

    def __init__(
        self, stream: TextIO | None = None, transform: Callable[[NodeView], NodeView] | None = None
    ) -> None:
        self._transform = transform
        self._stream = sys.stderr if stream is None else stream
        self._canvas = Canvas(self._stream)
        self._counter = CallCounter()
        self._took = 0.0  # seconds for the last drawing
        self._stack = ExitStack()

    @cached_property
    def is_live(self) -> bool:
        """Whether the tree can be redrawn while it grows."""
        return _can_draw(self._stream) and find_spec("rich") is not None

    def __enter__(self) -> Self:
        if self.is_live:
            self._stack.enter_context(self._canvas.redirect_output())
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def follow(self, watch: Watch, is_over: Callable[[], bool] | None = None) -> Iterator[NodeView]:
        """Show each view of *watch*, then yield it, up to the last one.

        *is_over* is polled between two redraws, so that the last view is not delayed.
        """
        view: NodeView | None = None
        while view is None or not view.state.final:
            try:
                for view in watch:
                    self.show(view)
                    yield view
                    if self.is_live and not view.state.final:
                        self._pause(is_over)
            except TimeoutError:  # there was no event; redraw the elapsed times
                if view is not None:
                    self.show(view)

    def _pause(self, is_over: Callable[[], bool] | None) -> None:
        end = time.monotonic() + max(_REDRAW_INTERVAL, _IDLE_FACTOR * self._took)
        while (left := end - time.monotonic()) > 0 and not (is_over is not None and is_over()):
            time.sleep(min(left, _POLL_INTERVAL))

    def show(self, view: NodeView, *, spare: int = 0) -> None:
        """Replace the view on the screen with *view*, and leave *spare* rows free below it."""
        view = view if self._transform is None else self._transform(view)
        if self.is_live:
            self._draw(view, spare)
        elif view.state.final:
            self._stream.write(f"{render(view, width=get_terminal_size().columns)}\n")
            if _can_draw(self._stream):
                self._stream.write(f"{_HINT}\n")
            self._stream.flush()

    @contextmanager
    def prompt(self) -> Generator["Prompt"]:
        """Use the terminal below the tree; afterwards, the tree is drawn below what was printed."""
        self._stack.close()
        prompt = Prompt(self, self._canvas, self._canvas.release(), self._stream)
        try:
            with self._canvas.detect_output(prompt.freeze_tree) if self.is_live else nullcontext():
                yield prompt
        finally:
            self.__enter__()

    def _draw(self, view: NodeView, spare: int) -> None:
        columns, lines = self._canvas.size
        rows = max(lines, _MOST_LINES) if view.state.final else max(2, lines - 1 - spare)
        self._canvas.draw(*self.lines(view, columns - 1, rows))
        if view.state.final:
            self._canvas.release()

    def lines(self, view: NodeView, columns: int, rows: int) -> tuple[list[str], list[int]]:
        """Return *view* as lines for the terminal, and their widths."""
        from treefold.views.styled import line_width, styled_lines, to_ansi  # noqa: PLC0415 - rich

        start = time.perf_counter()
        lines = styled_lines(view, columns, rows, datetime.now(UTC), self._counter)
        coloured = not os.environ.get("NO_COLOR")
        drawn = [to_ansi(line, coloured=coloured) for line in lines]
        self._took = time.perf_counter() - start
        return drawn, [line_width(line) for line in lines]


class Prompt:
    """The terminal below a tree, for printing and input while the tree above is still updated.

    Args:
        tree: gives the lines to draw.
        canvas: what they are drawn on.
        rows: how many rows the tree takes on the screen.
        stream: the terminal.
    """

    def __init__(self, tree: LiveTree, canvas: Canvas, rows: int, stream: TextIO) -> None:
        self._tree = tree
        self._canvas = canvas
        self._rows = rows if tree.is_live else 0  # 0: the tree is not updated
        self._stream = stream
        self._below = 0  # rows between the tree and the cursor
        self._next = 0.0  # when the tree may be redrawn

    def print(self, text: str) -> None:
        """Print *text*, complete lines."""
        if self._rows:
            from treefold.views.styled import cell_len  # noqa: PLC0415 - rich

            columns = self._canvas.size[0]
            self._below += sum(row_count(cell_len(line), columns) for line in text.split("\n"))
        print(text, file=self._stream, flush=True)

    @contextmanager
    def line_input(self, prompt: str) -> Generator[None]:
        """Print *prompt* for a line that the user types, and ends, inside the ``with`` block."""
        # Before the prompt: the user may type as soon as it is there.
        with self._canvas.single_row_input() if self._rows else nullcontext():
            print(prompt, end="", file=self._stream, flush=True)
            yield
        self._below += 1

    def end_line(self) -> None:
        """End the line of a prompt at which the user typed nothing."""
        print(file=self._stream, flush=True)

    def update_tree(self, view: Callable[[], NodeView]) -> None:
        """Redraw the tree from *view*, unless that was done just now."""
        if not self._rows or time.monotonic() < self._next:
            return
        began = time.monotonic()
        columns, height = self._canvas.size
        # A long question moves the first rows of the tree off the screen.
        rows = min(self._rows, height - 1 - self._below)
        if rows > 0:
            lines, _ = self._tree.lines(view(), columns - 1, rows)
            self._canvas.draw_above(lines, rows, self._below)
        took = time.monotonic() - began
        self._next = began + max(TICK, _IDLE_FACTOR * took)

    def freeze_tree(self) -> None:
        """Stop updating the tree: other code prints, so the position of the cursor is unknown."""
        self._rows = 0


def _can_draw(stream: TextIO) -> bool:
    """Whether *stream* is a terminal on which lines can be redrawn."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown", ""}:
        return False
    try:
        "".join(SIGNS.values()).encode(stream.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
