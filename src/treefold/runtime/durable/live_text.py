"""Responses while they arrive: broadcast by the driver of a journal, read by observers.

Broadcasts go through the store and are not kept: what counts is the complete response. A few per
second are enough for people.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from treefold.core.arriving import ArrivingResponse, Delta, OutputDelta
from treefold.core.model_events import TextDelta, TextWasThinking
from treefold.core.store import Store

_EVERY: Final = 0.1  # seconds


class _Text:
    """The text of a response, or of its result, that is arriving."""

    __slots__ = ("path", "pending", "sent")

    def __init__(self, path: tuple[str, ...] | None = None) -> None:
        self.path = path  # where the result is in its JSON text; None for the text
        self.sent = 0  # characters that were broadcast
        self.pending: list[str] = []

    def add(self, text: str, *, is_first: bool = False) -> None:
        if is_first:
            self.sent, self.pending = 0, []
        self.pending.append(text)

    def take(self) -> list[Any]:
        """Return what a broadcast has of it: its position, the text since the last, the path."""
        text = "".join(self.pending)
        taken = [self.sent, text] if self.path is None else [self.sent, text, self.path]
        self.sent += len(text)
        self.pending = []
        return taken


class _Response:
    """A response that is arriving, identified by the newest entry of its node."""

    __slots__ = ("entry", "output", "text", "tree")

    def __init__(self, tree: int, entry: int) -> None:
        self.tree = tree
        self.entry = entry
        self.text = _Text()
        self.output: _Text | None = None

    def add(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.text.add(delta.text)
        elif isinstance(delta, TextWasThinking):
            self.text.add("", is_first=True)
        elif isinstance(delta, OutputDelta):
            if self.output is None or delta.is_first:
                self.output = _Text(delta.path)
            self.output.add(delta.text, is_first=delta.is_first)


class LiveTextWriter:
    """Broadcasts arriving responses, in lines that a ``LiveTextReader`` parses.

    Args:
        number_of: returns how many entries a node has.
        sent: is called after each broadcast.
    """

    def __init__(
        self, store: Store, number_of: Callable[[int], int], sent: Callable[[], None]
    ) -> None:
        self._store = store
        self._number_of = number_of
        self._sent = sent
        self._arriving: dict[int, _Response] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, tree: int, node: int, delta: Delta) -> None:
        """Add a fragment of a response."""
        entry = self._number_of(node)
        response = self._arriving.get(node)
        if response is None or response.entry != entry:
            response = self._arriving[node] = _Response(tree, entry)
        response.add(delta)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_EVERY, self._broadcast)

    def _broadcast(self) -> None:
        self._timer = None
        for node, response in tuple(self._arriving.items()):
            if self._number_of(node) != response.entry:  # it is complete, or was discarded
                del self._arriving[node]
                continue
            for text in (response.text, response.output):
                if text is not None and text.pending:
                    line = [response.tree, node, response.entry, *text.take()]
                    self._store.broadcast(json.dumps(line))
        self._sent()


class _ReadText:
    """A response that is arriving, as far as it has been read."""

    __slots__ = ("entry", "output_end", "response", "text_end")

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.response = ArrivingResponse()
        self.text_end = 0  # the offset in the text at which it ends
        self.output_end = 0

    def add_text(self, start: int, text: str) -> None:
        if start == 0 and self.text_end:  # what came before was thinking
            self.response, self.text_end, self.output_end = ArrivingResponse(), 0, 0
        missed = "…" if start > self.text_end else ""
        self.response.add(TextDelta(missed + text))
        self.text_end = start + len(text)

    def add_output(self, start: int, text: str, path: tuple[str, ...]) -> None:
        # Without a fragment that was missed, the rest is not JSON.
        if start in {0, self.output_end}:
            self.response.add(OutputDelta(text, path, start == 0))
            self.output_end = start + len(text)


class LiveTextReader:
    """Assembles the arriving responses of one tree."""

    def __init__(self, store: Store, tree: int) -> None:
        self._store = store
        self._tree = tree
        self._position = 0  # in the broadcasts
        self._arriving: dict[int, _ReadText] = {}  # by node

    def read(self, numbers: Mapping[int, int]) -> dict[int, ArrivingResponse]:
        """Return the responses that are still arriving, by node.

        *numbers* has the number of entries of each node: what is older than the last is discarded.
        """
        self._position, lines = self._store.read_broadcasts(self._position)
        for line in lines:
            self._take(line)
        for node, read in tuple(self._arriving.items()):
            if read.entry < numbers.get(node, 0):
                del self._arriving[node]
        return {
            node: read.response
            for node, read in self._arriving.items()
            if read.entry == numbers.get(node)
        }

    def _take(self, line: str) -> None:
        match _parsed(line):
            case [int(tree), int(node), int(entry), int(start), str(text), *path] if (
                tree == self._tree
            ):
                read = self._arriving.get(node)
                if read is None or read.entry != entry:
                    read = self._arriving[node] = _ReadText(entry)
                if path:
                    read.add_output(start, text, tuple(path[0]))
                else:
                    read.add_text(start, text)
            case _:
                pass


def _parsed(line: str) -> list[Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return cast("list[Any]", found) if isinstance(found, list) else None
