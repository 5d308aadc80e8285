"""The state that one client has, and the server-sent events that bring it up to date.

Events carry the difference to what was sent before, not what happened in between, so it does not
matter what the client missed. Knows snapshots and versions, and nothing of connections.
"""

from collections.abc import Iterator

from treefold.core.views import NodeView
from treefold.views import data
from treefold.views.web.poller import Snapshot


class ClientState:
    """What one client has been sent.

    Args:
        seq: the version of its tree of which the client has all rows; 0 if it has none.
    """

    def __init__(self, seq: int) -> None:
        self._seq = seq
        self._trees = ""
        self._questions = ""
        self._texts: dict[int, str] = {}  # unfinished responses, by node

    def update(self, snapshot: Snapshot) -> str:
        """Return the events that bring the client to *snapshot*."""
        events: list[str] = []
        if snapshot.trees != self._trees:
            self._trees = snapshot.trees
            events.append(_event("trees", snapshot.trees))
        if snapshot.questions != self._questions:
            self._questions = snapshot.questions
            events.append(_event("questions", snapshot.questions))
        if snapshot.view is not None:
            events += self._rows(snapshot.view)
            events += self._live_texts(snapshot.view)
        return "".join(events)

    def _rows(self, view: NodeView) -> Iterator[str]:
        seq = view.update_seqnum
        if seq < self._seq:  # the client's rows are from another journal
            self._seq = 0
        if seq == self._seq:
            return
        rows = data.rows(view, after=self._seq)
        self._seq = seq
        yield _event("rows", data.to_json({"tree": view.id, "seq": seq, "rows": rows}), seq)

    def _live_texts(self, view: NodeView) -> Iterator[str]:
        texts = dict(_partial_texts(view))
        for node in self._texts.keys() | texts.keys():
            old, new = self._texts.get(node, ""), texts.get(node, "")
            if old != new:
                start = _common_prefix(old, new)
                yield _event(
                    "text", data.to_json({"node": node, "text": new[start:], "from": start})
                )
        self._texts = texts


def _partial_texts(top: NodeView) -> Iterator[tuple[int, str]]:
    views = [top]
    while views:
        view = views.pop()
        if not view.state.final:  # below a call that has ended, all calls have
            if view.partial:
                yield view.id, view.partial
            views.extend(view.children)


def _common_prefix(old: str, new: str) -> int:
    """Return how many characters *old* and *new* have in common at their beginning.

    Stops before the first character beyond U+FFFF, such as an emoji: JavaScript counts it as two,
    so what follows it has another index there.
    """
    most = min(len(old), len(new))
    if not new.startswith(old):
        most = next((n for n in range(most) if old[n] != new[n]), most)
    common = old[:most]
    if common.isascii() or max(common) <= "\uffff":
        return most
    return next(n for n in range(most) if common[n] > "\uffff")


def _event(name: str, text: str, id: int | None = None) -> str:
    lines = [f"event: {name}", f"data: {text}"]
    if id is not None:
        lines.insert(1, f"id: {id}")
    return "\n".join(lines) + "\n\n"
