"""The ASGI application: the page, its API and its event stream, behind the guard."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    StoreBusyError,
    StoreError,
    TreefoldError,
    UnknownNodeError,
    UnknownQuestionError,
    UsageError,
)
from treefold.http_server.guard import AccessPolicy, Guard, Hosts
from treefold.runtime.observe.observer import Observer
from treefold.views.web.api import Api, parse_id, read_query
from treefold.views.web.page import Page
from treefold.views.web.poller import Poller
from treefold.views.web.stream import Stream

# The status of an error is that of the first class that it is an instance of.
_STATUS: Final = (
    (UnknownNodeError, 404),
    (UnknownQuestionError, 409),
    (InvalidValueError, 400),
    (ClosedError, 503),  # the viewer is being closed
    (StoreBusyError, 503),  # the page tries again
    (StoreError, 500),
    (UsageError, 409),  # such as resuming a call that is not paused
    (TreefoldError, 500),
)
_INTERNAL_ERROR: Final = "internal error of the viewer; the log of its process has the traceback"

# The page loads nothing from other origins and runs no inline script, and the browser refuses
# markup that a script inserts as a string.
_CONTENT_POLICY: Final = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
))  # fmt: skip
_HEADERS: Final = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

log = logging.getLogger(__name__)


def application(
    observer: Observer, poller: Poller, *, token: str, host: str, files: Mapping[str, bytes]
) -> ASGIApp:
    """Return the application; it must be served on the event loop that *poller* runs on."""
    page = Page(files)

    async def stream(request: Request) -> Response:
        return await _stream(request, observer, poller)  # pyright: ignore[reportReturnType]

    app = Starlette(
        routes=[
            Route("/", page.index),
            Route("/assets/{name:path}", page.asset),
            Route("/api/stream", stream),
            *Api(observer).routes(),
        ],
        exception_handlers={
            HTTPException: _http_error,
            TreefoldError: _treefold_error,
            Exception: _internal_error,
        },
    )
    app.router.redirect_slashes = False
    policy = AccessPolicy(
        token,
        Hosts(host),
        wrong_host="the Host header is not a name of this viewer; use the address that it printed",
        wrong_origin="requests from other origins are refused; use the viewer's own page",
        wrong_token="the token is missing or wrong; open the address that the viewer printed, token"
        " included",
        needs_token=lambda path: path.startswith("/api/"),
        headers=_HEADERS,
    )
    return Guard(app, policy)


async def _stream(request: Request, observer: Observer, poller: Poller) -> Stream:
    query = request.query_params
    tree, seq = parse_id(query.get("tree", "0")), parse_id(query.get("seq", "0"))
    if tree is None or seq is None:
        raise HTTPException(400, "tree must be the id of a run, and seq a version of it")
    if tree:
        await to_thread.run_sync(observer.get_view, tree)  # raises if there is no such run
    runs = read_query(query)
    return Stream(poller, tree or None, seq, replace(runs, about=tree or runs.about))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    # Starlette's own errors have the name of the status as their detail.
    is_from_router = error.detail == HTTPException(error.status_code).detail
    unknown = f"there is no route for {request.method} {request.url.path[:100]!r}"
    detail = unknown if is_from_router else error.detail
    return JSONResponse({"error": detail}, error.status_code, error.headers)


async def _treefold_error(_request: Request, error: Exception) -> Response:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return JSONResponse({"error": str(error)}, status)


async def _internal_error(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": _INTERNAL_ERROR}, 500)
