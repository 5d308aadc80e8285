"""The static files of the page over HTTP, and nothing outside their folder."""

import asyncio
import json
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from treefold import MemoryStore, attach
from treefold.http_server.serving import listen, serve_on, url_of
from treefold.views.web.app import application
from treefold.views.web.page import page_files
from treefold.views.web.poller import Poller

FILES = {
    "index.html": b"<!doctype html><title>page</title>",
    "app.js": b"export const a = 1;",
    "style.css": b"a { b: c }",
    "icon.svg": b"<svg/>",
    "odd.xyz": b"?",
    "plain": b"?",
    "deep/er.js": b"deeper",
}


@contextmanager
def served(files: dict[str, bytes]) -> Generator[httpx.Client, None, None]:
    """Serve *files* with an empty journal."""
    started: Future[asyncio.Task[None]] = Future()

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        app = application(observer, Poller(observer), token="t", host="127.0.0.1", files=files)
        await serve_on(listening, app, lambda: started.set_result(task))

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(serve())

    with attach(MemoryStore()) as observer, listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=run)
        thread.start()
        task = started.result(20)
        with httpx.Client(base_url=url_of(listening, "127.0.0.1")) as client:
            yield client
        task.get_loop().call_soon_threadsafe(task.cancel)
        thread.join(60)


@pytest.fixture(scope="module")
def client() -> Generator[httpx.Client, None, None]:
    with served(FILES) as made:
        yield made


def test_files_come_whole_and_with_their_types_and_need_no_token(client: httpx.Client):
    for path, name, kind in [
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/assets/index.html", "index.html", "text/html; charset=utf-8"),
        ("/assets/app.js", "app.js", "text/javascript; charset=utf-8"),
        ("/assets/style.css", "style.css", "text/css; charset=utf-8"),
        ("/assets/icon.svg", "icon.svg", "image/svg+xml"),
        ("/assets/odd.xyz", "odd.xyz", "application/octet-stream"),
        ("/assets/plain", "plain", "application/octet-stream"),
        ("/assets/deep/er.js", "deep/er.js", "text/javascript; charset=utf-8"),
    ]:
        got = client.get(path)
        assert (got.status_code, got.content) == (200, FILES[name])
        assert got.headers["content-type"] == kind
        assert got.headers["cache-control"] == "no-cache"
        head = client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(FILES[name]))


def test_a_file_that_the_browser_has_is_not_sent_again(client: httpx.Client):
    tag = client.get("/assets/app.js").headers["etag"]
    for known in tag, f"W/{tag}", f'"other", {tag}':
        same = client.get("/assets/app.js", headers={"if-none-match": known})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    other = client.get("/assets/style.css", headers={"if-none-match": tag})
    assert (other.status_code, other.content) == (200, FILES["style.css"])
    assert other.headers["etag"] != tag


@pytest.mark.parametrize(
    "path",
    [
        "/assets/",
        "/assets",
        "/assets/nothing.js",
        "/assets/../page.py",
        "/assets/..%2fpage.py",
        "/assets/%2e%2e/page.py",
        "/assets/..%5cpage.py",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/deep",
        "/assets/deep/",
        "/assets/deep/../app.js",
        "/assets/./app.js",
        "/assets/app.js%00",
        "/assets/app.js%00.html",
        "/assets/app.js/",
        "/assets/APP.JS",
        "/assets/file:%2f%2f%2fetc%2fpasswd",
        "/assets/%ff",
        "//assets/app.js",
        "/index.html",
        "/etc/passwd",
    ],
)
def test_no_path_leads_to_anything_else(client: httpx.Client, path: str):
    connection = HTTPConnection(client.base_url.netloc.decode(), timeout=20)  # sends it as it is
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert (answer.status, list(json.loads(text))) == (404, ["error"])


def test_files_are_read_and_nothing_else(client: httpx.Client):
    for method in "POST", "PUT", "DELETE", "PATCH", "OPTIONS":
        for path in "/", "/assets/app.js":
            got = client.request(method, path)
            told = {"error": f"there is no route for {method} {path!r}"}
            assert (got.status_code, got.json()) == (405, told)


def test_all_that_is_in_the_folder_of_the_package_is_served():
    folder = Path(page_files.__code__.co_filename).parent / "assets"
    there = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    assert page_files() == there


def test_without_its_files_the_viewer_says_so():
    with served({}) as client:
        got = client.get("/")
        assert (got.status_code, got.json()) == (404, {"error": "the page has no such file"})
        assert urlsplit(str(got.url)).path == "/"
