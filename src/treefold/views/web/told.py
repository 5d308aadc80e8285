"""What one client has been told, and what it has to be told next; as text of an event stream.

A client is told how things stand, not what happened to them: whatever it missed, what it is told
next is the difference. Knows sights and versions, and nothing of connections.
"""

from collections.abc import Iterator

from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.web.encoding import encoded
from treefold.views.web.lookout import Sight


class Told:
    """What one client knows.

    Args:
        seq: the version of its tree that it has all rows of; 0 for none.
    """

    def __init__(self, seq: int) -> None:
        self._seq = seq
        self._trees = ""
        self._questions = ""
        self._texts: dict[int, str] = {}  # that are still coming in, by the node

    def news(self, sight: Sight) -> str:
        """Return what is to be sent so that the client knows all of *sight*."""
        messages: list[str] = []
        if sight.trees != self._trees:
            self._trees = sight.trees
            messages.append(_message("trees", sight.trees))
        if sight.questions != self._questions:
            self._questions = sight.questions
            messages.append(_message("questions", sight.questions))
        if sight.view is not None:
            messages += self._rows(sight.view)
            messages += self._live_texts(sight.view)
        return "".join(messages)

    def _rows(self, view: NodeView) -> Iterator[str]:
        seq = view.update_seqnum
        if seq < self._seq:  # what the client has is of another journal
            self._seq = 0
        if seq == self._seq:
            return
        rows = data.rows(view, after=self._seq)
        self._seq = seq
        yield _message("rows", encoded({"tree": view.id, "seq": seq, "rows": rows}), seq)

    def _live_texts(self, view: NodeView) -> Iterator[str]:
        texts = dict(_texts_below(view))
        for node in self._texts.keys() | texts.keys():
            old, new = self._texts.get(node, ""), texts.get(node, "")
            if old != new:
                start = _same(old, new)
                yield _message("text", encoded({"node": node, "text": new[start:], "from": start}))
        self._texts = texts


def _texts_below(top: NodeView) -> Iterator[tuple[int, str]]:
    views = [top]
    while views:
        view = views.pop()
        if not view.state.final:  # nor is anything below it otherwise
            if view.partial:
                yield view.id, view.partial
            views.extend(view.children)


def _same(old: str, new: str) -> int:
    """Return how many characters at the beginning are to be kept.

    Only as many as have the same number in every language: some count a character beyond U+FFFF,
    such as an emoji, as two.
    """
    most = min(len(old), len(new))
    if not new.startswith(old):
        most = next((n for n in range(most) if old[n] != new[n]), most)
    kept = old[:most]
    if kept.isascii() or max(kept) <= "\uffff":
        return most
    return next(n for n in range(most) if kept[n] > "\uffff")


def _message(event: str, text: str, id: int | None = None) -> str:
    lines = [f"event: {event}", f"data: {text}"]
    if id is not None:
        lines.insert(1, f"id: {id}")
    return "\n".join(lines) + "\n\n"
