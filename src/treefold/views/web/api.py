"""The JSON API: each route is a function from a request to plain data.

These functions wait for the store, so they run in worker threads.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, get_args

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from treefold.core.address import address
from treefold.core.edit import Edit
from treefold.core.errors import InvalidValueError, StoreError, UnknownNodeError
from treefold.core.views import NodeView
from treefold.runtime.observe.observer import Observer
from treefold.version import __version__
from treefold.views import data
from treefold.views.flame import By
from treefold.views.fork_plan import fork_plan, shared_calls
from treefold.views.liveness import with_interruption
from treefold.views.search import search
from treefold.views.timing import Totals, timing_of
from treefold.views.web.body import read_fields
from treefold.views.web.listing import Listing
from treefold.views.web.run_query import RunQuery, select
from treefold.views.web.run_summaries import RunSummaries

_MOST_DIGITS: Final = 18  # of an id; as many always fit into 64 bits
_ACCEPTANCE: Final = 2.0  # seconds
_POLL: Final = 0.05  # seconds
_LONGEST_SEARCH: Final = 1_000  # characters
_MOST_SUMMARIES: Final = 100  # in one request
_USUAL_RUNS: Final = 50  # of sums over several runs
_MOST_RUNS: Final = 500
_MOST_CALLS: Final = 20_000  # after which no other run is added
_EDITS: Final = ("prompt", "model", "system", "args", "result")


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """The parameters of a request."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    fields: Mapping[str, Any]

    def node(self) -> int:
        """Return the node id in the path.

        Raises:
            HTTPException: it is not an id.
        """
        if (id := parse_id(self.path["id"])) is None:
            raise HTTPException(404, f"a node id must be a number, got {self.path['id'][:100]!r}")
        return id

    def query_node(self, name: str) -> int:
        """Return the node id in a query parameter.

        Raises:
            HTTPException: it is missing, or not an id.
        """
        given = self.query.get(name, "")
        if (id := parse_id(given)) is None:
            raise HTTPException(400, f"{name} must be the id of a node, got {given[:100]!r}")
        return id


Handler = Callable[[ApiRequest], Any]


class Api:
    """The routes of one journal."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._listing = Listing(observer)
        self._summaries = RunSummaries(observer)

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            _get("/api/journal", self._journal),
            _get("/api/trees", self._trees),
            _get("/api/summaries", self._summarize),
            _get("/api/runs/{id}", self._run),
            _get("/api/nodes/{id}", self._detail),
            _get("/api/nodes/{id}/parts/{part}", self._part),
            _get("/api/nodes/{id}/stack", self._stack),
            _get("/api/nodes/{id}/fork-plan", self._fork_plan),
            _get("/api/trees/{id}/flame", self._flame),
            _get("/api/trees/{id}/shared", self._shared),
            _get("/api/trees/{id}/timing", lambda r: data.timing(self._view(r.node()))),
            _get("/api/totals", self._totals),
            _get("/api/difference", self._difference),
            _get("/api/search", self._search),
            _get("/api/questions", lambda _: {"questions": self._listing.questions()}),
            _get("/api/forks/{key}", self._forked),
            _post("/api/questions/{id}", self._answer, "text", "args"),
            _post("/api/nodes/{id}/pause", self._pause, "reason"),
            _post("/api/nodes/{id}/cancel", self._cancel, "reason"),
            _post("/api/nodes/{id}/resume", self._resume),
            _post("/api/nodes/{id}/fork", self._fork, "at", *_EDITS),
        ]

    # Reading

    def _journal(self, _request: ApiRequest) -> Any:
        name = PurePath(self._observer.name).name
        return {"name": name, "driven": self._observer.is_driven, "version": __version__}

    def _trees(self, request: ApiRequest) -> Any:
        trees = self._listing.trees(self._listing.questions())
        return select(trees, read_query(request.query))

    def _run(self, request: ApiRequest) -> Any:
        """Find a run by its number, which is in the addresses of pages."""
        number = parse_id(request.path["id"])
        found = None if number is None else self._observer.find_number(number)
        if found is None:
            raise HTTPException(404, f"there is no run {request.path['id'][:100]}")
        return {"id": found}

    def _forked(self, request: ApiRequest) -> Any:
        node = self._observer.forked(request.path["key"])
        number = None if node is None else int(self._observer.get_view(node).path)
        return {"node": node, "number": number}

    def _summarize(self, request: ApiRequest) -> Any:
        ids = [parse_id(id) for id in request.query.get("ids", "").split(",", _MOST_SUMMARIES)]
        found = self._summaries.of([id for id in ids if id is not None])
        return {"summaries": {str(id): one for id, one in found.items()}}

    def _view(self, node: int) -> NodeView:
        tree = self._observer.tree_of(node)
        view = self._observer.get_view(node)
        return with_interruption(view, self._observer.interrupted(tree), tree)

    def _detail(self, request: ApiRequest) -> Any:
        path = self._view(request.node()).path
        view, above = self._view(self._observer.tree_of(request.node())), None
        while view.path != path:
            above = view
            view = next(one for one in view.children if f"{path}.".startswith(f"{one.path}."))
        if above is None:
            return data.detail(view)
        tied = sum(one.sequence == view.sequence for one in above.children) > 1
        return data.detail(view, above.id, tied=tied)

    def _part(self, request: ApiRequest) -> Any:
        view, part = self._view(request.node()), parse_id(request.path["part"])
        parts = len(view.transcript) + bool(view.system)
        if part is None or part >= parts:
            what = f"the transcript of {address(view.path)} has {parts} parts, from 0"
            raise HTTPException(404, what)
        return {"text": data.part_text(view, part)}

    def _stack(self, request: ApiRequest) -> Any:
        return {"frames": [data.frame(one) for one in self._observer.stack(request.node())]}

    def _flame(self, request: ApiRequest) -> Any:
        view, by = self._view(request.node()), request.query.get("by", "time")
        for kind in get_args(By):
            if by == kind:
                return data.flame(view, kind)
        kinds = ", ".join(get_args(By))
        raise HTTPException(400, f"by must be one of {kinds}, got {by[:100]!r}")

    def _fork_plan(self, request: ApiRequest) -> Any:
        node, at = request.node(), parse_id(request.query.get("at", "0")) or 0
        events = self._observer.events(self._observer.tree_of(node), long_texts=False).read()
        gives_result = request.query.get("change") == "result"
        return data.fork_plan(fork_plan(events, node, at, gives_result=gives_result))

    def _shared(self, request: ApiRequest) -> Any:
        source = request.query_node("source")
        view = self._observer.get_view(request.node())
        found = shared_calls(view, self._observer.get_view(source))
        return {"nodes": {str(id): node for id, node in found.items()}}

    def _totals(self, request: ApiRequest) -> Any:
        """Sum over the newest runs; stops early after many calls, and says how many were read."""
        given = request.query.get("runs", str(_USUAL_RUNS))
        wanted = parse_id(given)
        if not wanted or wanted > _MOST_RUNS:
            most = f"runs must be a number from 1 to {_MOST_RUNS}"
            raise HTTPException(400, f"{most}, got {given[:100]!r}")
        trees = self._observer.trees()
        found, unreadable = Totals(), 0
        for tree in reversed(trees[-wanted:]):
            if found.calls >= _MOST_CALLS:
                break
            try:
                view = self._view(tree.id)
            except (StoreError, UnknownNodeError):
                # A run that cannot be read, or was just deleted, must not hide the others.
                unreadable += 1
                continue
            found.add(view, timing_of(view))
        limit = {"wanted": wanted, "most_calls": _MOST_CALLS, "unreadable": unreadable}
        return data.totals(found) | {"all": len(trees), **limit}

    def _difference(self, request: ApiRequest) -> Any:
        a, b = (self._view(request.query_node(name)) for name in "ab")
        return data.difference(a, b)

    def _search(self, request: ApiRequest) -> Any:
        text = request.query.get("q", "")
        if len(text) > _LONGEST_SEARCH:
            most = f"q must have at most {_LONGEST_SEARCH:,} characters"
            raise HTTPException(400, f"{most}, got {len(text):,}")
        return {"nodes": search(self._observer.get_view(request.query_node("tree")), text)}

    # Commands

    def _answer(self, request: ApiRequest) -> Any:
        text, args = request.fields.get("text", ""), request.fields.get("args")
        node = parse_id(request.path["id"].partition("-")[0])
        self._observer.tree_of(node or 0)  # raises if there never was such a question
        id = request.path["id"]
        self._observer.answer(id, text, args=args)
        self._check_accepted(id, node or 0)
        return {}

    def _check_accepted(self, id: str, node: int) -> None:
        """Wait a moment for the program, which may know more than the form of a question says.

        Raises:
            InvalidValueError: it has refused the answer.
        """
        end = time.monotonic() + _ACCEPTANCE
        while self._observer.is_driven and time.monotonic() < end:
            if (why := self._observer.refusal(id)) is not None:
                raise InvalidValueError(why)
            asked = {one.id: one for one in self._observer.get_view(node).questions}
            if id not in asked or asked[id].form is None:
                return
            time.sleep(_POLL)

    def _pause(self, request: ApiRequest) -> Any:
        self._observer.pause(request.node(), **request.fields)
        return {}

    def _cancel(self, request: ApiRequest) -> Any:
        self._observer.cancel(request.node(), **request.fields)
        return {}

    def _resume(self, request: ApiRequest) -> Any:
        self._observer.resume(request.node())
        return {}

    def _fork(self, request: ApiRequest) -> Any:
        edits = {name: request.fields[name] for name in _EDITS if name in request.fields}
        edit = Edit(**edits) if edits else None
        return {"key": self._observer.fork(request.node(), request.fields.get("at"), edit)}


def parse_id(text: str) -> int | None:
    """Return *text* as a number; None if it cannot be an id."""
    is_id = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_id else None


def read_query(given: Mapping[str, str]) -> RunQuery:
    """Return which runs the parameters of a request ask for."""
    return RunQuery(
        state=given.get("state", ""),
        function=given.get("function", ""),
        text=given.get("q", "").strip()[:_LONGEST_SEARCH],
        page=parse_id(given.get("page", "")) or 1,
        newest=parse_id(given.get("newest", "")) or 0,
        about=parse_id(given.get("about", "")) or 0,
    )


def _get(path: str, handler: Handler) -> Route:
    async def endpoint(request: Request) -> Response:
        return await _respond(handler, request, {})

    return Route(path, endpoint, methods=["GET"])


def _post(path: str, handler: Handler, *fields: str) -> Route:
    async def endpoint(request: Request) -> Response:
        return await _respond(handler, request, await read_fields(request, fields))

    return Route(path, endpoint, methods=["POST"])


async def _respond(handler: Handler, request: Request, fields: Mapping[str, Any]) -> Response:
    parameters = ApiRequest(request.path_params, request.query_params, fields)
    text = await to_thread.run_sync(lambda: data.to_json(handler(parameters)))
    return Response(text, media_type="application/json")
