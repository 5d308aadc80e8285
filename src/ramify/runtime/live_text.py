"""What models say, told to those who look on from other processes while it comes in.

It goes through the store and is not kept: what counts is the response, when it is complete. A few
times a second is enough for people.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ramify.core.agent_events import ResponseStreamed
from ramify.core.model_events import TextDelta, TextWasThinking
from ramify.core.store import Store

_EVERY: Final = 0.1  # seconds


class _Response:
    """One that comes in: the node's newest entry says which."""

    __slots__ = ("entry", "news", "tell_from", "tree")

    def __init__(self, tree: int, entry: int) -> None:
        self.tree = tree
        self.entry = entry
        self.tell_from = 0  # how much of it has been told
        self.news: list[str] = []


class Teller:
    """Tells of responses that come in, in lines that ``Hearer`` understands."""

    def __init__(self, store: Store, number_of: Callable[[int], int]) -> None:
        self._store = store
        self._number_of = number_of  # entries a node has
        self._coming: dict[int, _Response] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, tree: int, event: ResponseStreamed) -> None:
        """Take in a little more of a response."""
        entry = self._number_of(event.node)
        response = self._coming.get(event.node)
        if response is None or response.entry != entry:
            response = self._coming[event.node] = _Response(tree, entry)
        if isinstance(event.delta, TextDelta):
            response.news.append(event.delta.text)
        elif isinstance(event.delta, TextWasThinking):
            response.tell_from, response.news = 0, [""]
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_EVERY, self._tell)

    def _tell(self) -> None:
        self._timer = None
        for node, response in tuple(self._coming.items()):
            if self._number_of(node) != response.entry:  # it is complete, or void
                del self._coming[node]
            elif response.news:
                text = "".join(response.news)
                line = [response.tree, node, response.entry, response.tell_from, text]
                self._store.tell(json.dumps(line))
                response.tell_from += len(text)
                response.news = []


class Hearer:
    """Puts together what is told of one tree."""

    def __init__(self, store: Store, tree: int) -> None:
        self._store = store
        self._tree = tree
        self._place = 0
        self._heard: dict[int, tuple[int, str]] = {}  # by node: the entry, and the text so far

    def hear(self, numbers: Mapping[int, int]) -> dict[int, str]:
        """Return the text of each response that is still coming in, by node.

        *numbers* says how many entries each node has: what was told before the last one is void.
        """
        self._place, lines = self._store.told(self._place)
        for line in lines:
            self._take(line)
        for node, (entry, _) in tuple(self._heard.items()):
            if entry < numbers.get(node, 0):
                del self._heard[node]
        return {
            node: text for node, (entry, text) in self._heard.items() if entry == numbers.get(node)
        }

    def _take(self, line: str) -> None:
        match _parsed(line):
            case [int(tree), int(node), int(entry), int(start), str(text)] if tree == self._tree:
                known, before = self._heard.get(node, (entry, ""))
                before = before if known == entry else ""
                missed = "…" if start > len(before) else ""
                self._heard[node] = entry, before[:start] + missed + text
            case _:
                pass


def _parsed(line: str) -> list[Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return cast("list[Any]", found) if isinstance(found, list) else None
