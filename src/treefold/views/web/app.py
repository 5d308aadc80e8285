"""The application: the page, what it asks for and what it follows, behind the guard."""

import logging
from collections.abc import Mapping
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
    StoreError,
    TreefoldError,
    UnknownNodeError,
    UnknownQuestionError,
    UsageError,
)
from treefold.http_server.guard import Guard, Hosts, Policy
from treefold.runtime.observer import Observer
from treefold.views.web.api import Api, number
from treefold.views.web.lookout import Lookout
from treefold.views.web.page import Page
from treefold.views.web.stream import Stream

_STATUS: Final = (  # of the first that it is
    (UnknownNodeError, 404),
    (UnknownQuestionError, 409),
    (InvalidValueError, 400),
    (ClosedError, 500),
    (StoreError, 500),
    (UsageError, 409),  # it has ended, or is not paused
    (TreefoldError, 500),
)
_FAULT: Final = "something went wrong inside the viewer; where it was started, its log says what"

# Nothing is loaded from elsewhere, nothing in the page itself is run, and what a script puts into
# it as markup is refused by the browser.
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
    observer: Observer, lookout: Lookout, *, token: str, host: str, files: Mapping[str, bytes]
) -> ASGIApp:
    """Return what answers requests, on the loop that *lookout* runs on."""
    page = Page(files)

    async def stream(request: Request) -> Response:
        return await _stream(request, observer, lookout)  # pyright: ignore[reportReturnType]

    app = Starlette(
        routes=[
            Route("/", page.first),
            Route("/assets/{name:path}", page.asset),
            Route("/api/stream", stream),
            *Api(observer).routes(),
        ],
        exception_handlers={
            HTTPException: _told_so,
            TreefoldError: _told_so,
            Exception: _faulty,
        },
    )
    app.router.redirect_slashes = False
    policy = Policy(
        token,
        Hosts(host),
        wrong_host="this viewer does not answer to that name; use the address that it printed",
        wrong_origin="the page that sent this is not the viewer's own; use the one that it serves",
        wrong_token="the token is missing or wrong; open the address that the viewer printed, token"
        " included",
        needs_token=lambda path: path.startswith("/api/"),
        headers=_HEADERS,
    )
    return Guard(app, policy)


async def _stream(request: Request, observer: Observer, lookout: Lookout) -> Stream:
    query = request.query_params
    tree, seq = number(query.get("tree", "0")), number(query.get("seq", "0"))
    if tree is None or seq is None:
        raise HTTPException(400, "tree is the id of a run, and seq the last that was told of it")
    if tree:
        await to_thread.run_sync(observer.get_view, tree)  # raises unless it is there
    return Stream(lookout, tree or None, seq)


async def _told_so(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        nowhere = error.detail == HTTPException(error.status_code).detail  # says no more than that
        said = f"{request.method} {request.url.path[:100]!r} is nothing that is offered here"
        said = said if nowhere else error.detail
        return JSONResponse({"error": said}, error.status_code, error.headers)
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return JSONResponse({"error": str(error)}, status)


async def _faulty(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": _FAULT}, 500)
