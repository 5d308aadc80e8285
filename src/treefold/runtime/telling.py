"""What models say, told to those who look on from other processes while it comes in.

It goes through the store and is not kept: what counts is the response, when it is complete. A few
times a second is enough for people.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Final

from treefold.core.agent_events import ResponseStreamed
from treefold.core.model_events import TextDelta, TextWasThinking
from treefold.core.store import Store

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
    """Tells of responses that come in, in lines that a ``Hearer`` understands."""

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
                self._store.broadcast(json.dumps(line))
                response.tell_from += len(text)
                response.news = []
