"""The static files of the page, as they come with the package: no data, and no secret.

They are read once and looked up by their full name, so no path can lead out of their folder.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

INDEX: Final = "index.html"

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
_DEFAULT_TYPE: Final = "application/octet-stream"


def page_files() -> dict[str, bytes]:
    """Return the content of each file by its path below the folder, with slashes."""
    return dict(_walk(files("treefold.views.web") / "assets", ""))


def _walk(folder: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{above}{entry.name}/")
        elif not entry.name.startswith("."):
            yield above + entry.name, entry.read_bytes()


class Page:
    """Serves those files; browsers revalidate them with each request, by their ETags."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._tags = {
            name: f'"{hashlib.sha256(content).hexdigest()[:32]}"' for name, content in files.items()
        }

    async def index(self, request: Request) -> Response:
        """Respond with the page itself."""
        return self._file(request, INDEX)

    async def asset(self, request: Request) -> Response:
        """Respond with a file that the page loads."""
        return self._file(request, request.path_params["name"])

    def _file(self, request: Request, name: str) -> Response:
        if name not in self._files:
            raise HTTPException(404, "the page has no such file")
        tag = self._tags[name]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in _parse_tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        kind = _TYPES.get(name.rpartition(".")[2], _DEFAULT_TYPE)
        return Response(self._files[name], media_type=kind, headers=headers)


def _parse_tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}
