"""The files of the page, as they come with the package: no data, and no secret.

They are read once, and found by their whole name, so that no path leads out of their folder.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FIRST: Final = "index.html"

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
_ANY_TYPE: Final = "application/octet-stream"


def page_files() -> dict[str, bytes]:
    """Return what is in the folder, by its name, with slashes if it is further down."""
    return dict(_found(files("treefold.views.web") / "assets", ""))


def _found(folder: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _found(entry, f"{above}{entry.name}/")
        elif not entry.name.startswith("."):
            yield above + entry.name, entry.read_bytes()


class Page:
    """Answers with those files; browsers ask each time whether they are still the same."""

    def __init__(self, named: Mapping[str, bytes]) -> None:
        self._files = named
        self._tags = {
            name: f'"{hashlib.sha256(text).hexdigest()[:32]}"' for name, text in named.items()
        }

    async def first(self, request: Request) -> Response:
        """Answer with the page itself."""
        return self._file(request, FIRST)

    async def asset(self, request: Request) -> Response:
        """Answer with one of its parts."""
        return self._file(request, request.path_params["name"])

    def _file(self, request: Request, name: str) -> Response:
        if name not in self._files:
            raise HTTPException(404, "the page has no such file")
        tag = self._tags[name]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in _tags_in(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        kind = _TYPES.get(name.rpartition(".")[2], _ANY_TYPE)
        return Response(self._files[name], media_type=kind, headers=headers)


def _tags_in(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}
