"""What a page may ask for, each a function from what was asked to plain data.

They wait for the store, so all of them run in worker threads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, get_args

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from treefold.core.forking import Edit
from treefold.core.views import NodeView
from treefold.runtime.observer import Observer
from treefold.version import __version__
from treefold.views import data
from treefold.views.flame import By
from treefold.views.liveness import with_interruption
from treefold.views.search import found
from treefold.views.web.body import fields_of
from treefold.views.web.encoding import encoded
from treefold.views.web.listing import Listing

_MOST_DIGITS: Final = 18  # of a number that a store has room for
_LONGEST_SEARCH: Final = 1_000  # characters
_EDITS: Final = ("prompt", "model", "args", "result")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, without how it came."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    fields: Mapping[str, Any]

    def node(self) -> int:
        """Return the id in the path.

        Raises:
            HTTPException: it is none.
        """
        if (id := number(self.path["id"])) is None:
            raise HTTPException(404, f"{self.path['id'][:100]!r} is no node; its id is a number")
        return id

    def queried(self, name: str) -> int:
        """Return an id in the query.

        Raises:
            HTTPException: it is none.
        """
        if (id := number(self.query.get(name, ""))) is None:
            raise HTTPException(400, f"say which: {name}=ID, with the id of a node")
        return id


Handler = Callable[[Asked], Any]


class Api:
    """Answers from one journal."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._listing = Listing(observer)

    def routes(self) -> list[Route]:
        """Return what it answers to."""
        return [
            _get("/api/journal", self._journal),
            _get("/api/trees", self._trees),
            _get("/api/nodes/{id}", self._detail),
            _get("/api/nodes/{id}/parts/{part}", self._part),
            _get("/api/nodes/{id}/stack", self._stack),
            _get("/api/trees/{id}/flame", self._flame),
            _get("/api/difference", self._difference),
            _get("/api/search", self._search),
            _get("/api/questions", lambda _: {"questions": self._listing.questions()}),
            _get("/api/forks/{key}", lambda a: {"node": self._observer.forked(a.path["key"])}),
            _post("/api/questions/{id}", self._answer, "text", "args"),
            _post("/api/nodes/{id}/pause", self._pause, "reason"),
            _post("/api/nodes/{id}/cancel", self._cancel, "reason"),
            _post("/api/nodes/{id}/resume", self._resume),
            _post("/api/nodes/{id}/fork", self._fork, "at", *_EDITS),
        ]

    # What there is

    def _journal(self, _asked: Asked) -> Any:
        name = PurePath(self._observer.name).name
        return {"name": name, "driven": self._observer.is_driven, "version": __version__}

    def _trees(self, _asked: Asked) -> Any:
        return {"trees": self._listing.trees(self._listing.questions())}

    def _view(self, asked: Asked) -> NodeView:
        return self._seen(asked.node())

    def _seen(self, node: int) -> NodeView:
        tree = self._observer.tree_of(node)
        view = self._observer.get_view(node)
        return with_interruption(view, self._observer.interrupted(), tree)

    def _detail(self, asked: Asked) -> Any:
        path = self._view(asked).path
        view, above = self._seen(self._observer.tree_of(asked.node())), None
        while view.path != path:
            above = view
            view = next(one for one in view.children if f"{path}.".startswith(f"{one.path}."))
        if above is None:
            return data.detail(view)
        tied = sum(one.sequence == view.sequence for one in above.children) > 1
        return data.detail(view, above.id, tied=tied)

    def _part(self, asked: Asked) -> Any:
        view, part = self._view(asked), number(asked.path["part"])
        parts = len(view.transcript) + bool(view.system)
        if part is None or part >= parts:
            raise HTTPException(404, f"the transcript of node {view.id} has {parts} parts, from 0")
        return {"text": data.part_text(view, part)}

    def _stack(self, asked: Asked) -> Any:
        return {"frames": [data.frame(one) for one in self._observer.stack(asked.node())]}

    def _flame(self, asked: Asked) -> Any:
        view, by = self._view(asked), asked.query.get("by", "time")
        for kind in get_args(By):
            if by == kind:
                return data.flame(view, kind)
        raise HTTPException(400, f"by is one of {', '.join(get_args(By))}")

    def _difference(self, asked: Asked) -> Any:
        a, b = (self._seen(asked.queried(name)) for name in "ab")
        return data.difference(a, b)

    def _search(self, asked: Asked) -> Any:
        text = asked.query.get("q", "")
        if len(text) > _LONGEST_SEARCH:
            raise HTTPException(400, f"search for at most {_LONGEST_SEARCH} characters")
        return {"nodes": found(self._observer.get_view(asked.queried("tree")), text)}

    # What is asked for

    def _answer(self, asked: Asked) -> Any:
        text, args = asked.fields.get("text", ""), asked.fields.get("args")
        node = number(asked.path["id"].partition("-")[0])
        self._observer.tree_of(node or 0)  # or there never was such a question
        self._observer.answer(asked.path["id"], text, args=args)
        return {}

    def _pause(self, asked: Asked) -> Any:
        self._observer.pause(asked.node(), **asked.fields)
        return {}

    def _cancel(self, asked: Asked) -> Any:
        self._observer.cancel(asked.node(), **asked.fields)
        return {}

    def _resume(self, asked: Asked) -> Any:
        self._observer.resume(asked.node())
        return {}

    def _fork(self, asked: Asked) -> Any:
        edits = {name: asked.fields[name] for name in _EDITS if name in asked.fields}
        edit = Edit(**edits) if edits else None
        return {"key": self._observer.fork(asked.node(), asked.fields.get("at"), edit)}


def number(text: str) -> int | None:
    """Return the number that *text* is, if it is one that an id could be."""
    is_one = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_one else None


def _get(path: str, handler: Handler) -> Route:
    async def answer(request: Request) -> Response:
        return await _answered(handler, request, {})

    return Route(path, answer, methods=["GET"])


def _post(path: str, handler: Handler, *fields: str) -> Route:
    async def answer(request: Request) -> Response:
        return await _answered(handler, request, await fields_of(request, fields))

    return Route(path, answer, methods=["POST"])


async def _answered(handler: Handler, request: Request, fields: Mapping[str, Any]) -> Response:
    asked = Asked(request.path_params, request.query_params, fields)
    text = await to_thread.run_sync(lambda: encoded(handler(asked)))
    return Response(text, media_type="application/json")
