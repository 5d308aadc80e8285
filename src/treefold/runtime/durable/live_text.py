"""The text of responses while they arrive: broadcast by the driver of a journal, read by observers.

Broadcasts go through the store and are not kept: what counts is the complete response. A few per
second are enough for people.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from treefold.core.agent_events import ResponseStreamed
from treefold.core.model_events import TextDelta, TextWasThinking
from treefold.core.store import Store

_EVERY: Final = 0.1  # seconds


class _Response:
    """A response that is arriving, identified by the newest entry of its node."""

    __slots__ = ("entry", "pending", "sent", "tree")

    def __init__(self, tree: int, entry: int) -> None:
        self.tree = tree
        self.entry = entry
        self.sent = 0  # characters that were broadcast
        self.pending: list[str] = []


class LiveTextWriter:
    """Broadcasts the text of arriving responses, in lines that a ``LiveTextReader`` parses."""

    def __init__(self, store: Store, number_of: Callable[[int], int]) -> None:
        self._store = store
        self._number_of = number_of  # entries a node has
        self._arriving: dict[int, _Response] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, tree: int, event: ResponseStreamed) -> None:
        """Add a piece of a response."""
        entry = self._number_of(event.node)
        response = self._arriving.get(event.node)
        if response is None or response.entry != entry:
            response = self._arriving[event.node] = _Response(tree, entry)
        if isinstance(event.delta, TextDelta):
            response.pending.append(event.delta.text)
        elif isinstance(event.delta, TextWasThinking):
            response.sent, response.pending = 0, [""]
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_EVERY, self._broadcast)

    def _broadcast(self) -> None:
        self._timer = None
        for node, response in tuple(self._arriving.items()):
            if self._number_of(node) != response.entry:  # it is complete, or was discarded
                del self._arriving[node]
            elif response.pending:
                text = "".join(response.pending)
                line = [response.tree, node, response.entry, response.sent, text]
                self._store.broadcast(json.dumps(line))
                response.sent += len(text)
                response.pending = []


class LiveTextReader:
    """Assembles the text of the arriving responses of one tree."""

    def __init__(self, store: Store, tree: int) -> None:
        self._store = store
        self._tree = tree
        self._position = 0  # in the broadcasts
        # By node: the entry, the text so far, and the offset in the response at which it ends.
        self._texts: dict[int, tuple[int, str, int]] = {}

    def read(self, numbers: Mapping[int, int]) -> dict[int, str]:
        """Return the text of each response that is still arriving, by node.

        *numbers* has the number of entries of each node: text older than the last is discarded.
        """
        self._position, lines = self._store.read_broadcasts(self._position)
        for line in lines:
            self._take(line)
        for node, (entry, _, _) in tuple(self._texts.items()):
            if entry < numbers.get(node, 0):
                del self._texts[node]
        return {
            node: text
            for node, (entry, text, _) in self._texts.items()
            if entry == numbers.get(node)
        }

    def _take(self, line: str) -> None:
        match _parsed(line):
            case [int(tree), int(node), int(entry), int(start), str(text)] if tree == self._tree:
                known, before, end = self._texts.get(node, (entry, "", 0))
                if known != entry or not start:
                    before, end = "", 0
                before += "…" if start > end else ""  # a broadcast was missed
                self._texts[node] = entry, before + text, start + len(text)
            case _:
                pass


def _parsed(line: str) -> list[Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return cast("list[Any]", found) if isinstance(found, list) else None
