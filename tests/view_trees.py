"""Trees of views that no run has made, for tests of what is shown."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from treefold import NodeState, NodeView
from treefold.core.fact import replace

START = datetime(2026, 1, 1, tzinfo=UTC)


def call(
    fn: str,
    state: str,
    *children: NodeView,
    start: float = 0,
    end: float | None = None,
    **more: Any,
) -> NodeView:
    """Return a call that began and ended so many seconds after START."""
    began = state != "waiting"
    given: dict[str, Any] = {"inputs": {}, "outputs": None, "exception": None, "sequence": 1}
    return NodeView(
        id=0,
        path="",
        fn=fn,
        state=NodeState(state),
        values=(),
        children=children,
        started_at=START + timedelta(seconds=start) if began else None,
        ended_at=START + timedelta(seconds=end) if end is not None else None,
        update_seqnum=1,
        **(given | more),
    )


def planted(view: NodeView, path: str = "1", ids: Iterator[int] | None = None) -> NodeView:
    """Return *view* with the ids and paths that a run would have given; not for deep trees."""
    ids = count(1) if ids is None else ids
    id = next(ids)
    children = [planted(child, f"{path}.{n}", ids) for n, child in enumerate(view.children, 1)]
    return replace(view, id=id, path=path, children=tuple(children))


def after(seconds: float) -> datetime:
    """Return a moment."""
    return START + timedelta(seconds=seconds)


def flat(view: NodeView) -> list[NodeView]:
    """Return *view* and all below it, parents first."""
    return [view, *[one for child in view.children for one in flat(child)]]
