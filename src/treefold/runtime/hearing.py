"""What the driver tells of responses that come in, put together by whoever looks on."""

import json
from collections.abc import Mapping
from typing import Any, cast

from treefold.core.store import Store


class Hearer:
    """Puts together what is told of one tree."""

    def __init__(self, store: Store, tree: int) -> None:
        self._store = store
        self._tree = tree
        self._place = 0
        # by node: the entry, the text so far, and up to which of its characters
        self._heard: dict[int, tuple[int, str, int]] = {}

    def hear(self, numbers: Mapping[int, int]) -> dict[int, str]:
        """Return the text of each response that is still coming in, by node.

        *numbers* says how many entries each node has: what was told before the last one is void.
        """
        self._place, lines = self._store.read_broadcasts(self._place)
        for line in lines:
            self._take(line)
        for node, (entry, _, _) in tuple(self._heard.items()):
            if entry < numbers.get(node, 0):
                del self._heard[node]
        return {
            node: text
            for node, (entry, text, _) in self._heard.items()
            if entry == numbers.get(node)
        }

    def _take(self, line: str) -> None:
        match _parsed(line):
            case [int(tree), int(node), int(entry), int(start), str(text)] if tree == self._tree:
                known, before, end = self._heard.get(node, (entry, "", 0))
                if known != entry or not start:
                    before, end = "", 0
                before += "…" if start > end else ""  # something was missed
                self._heard[node] = entry, before + text, start + len(text)
            case _:
                pass


def _parsed(line: str) -> list[Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return cast("list[Any]", found) if isinstance(found, list) else None
