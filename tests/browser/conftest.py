"""A real browser that reaches nothing but this machine, and what it may not say."""

import os
import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nothing elsewhere has an address. To refuse each request here would cost a round trip for all.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # The pages of a test need no processes of their own to be kept apart.
    "--renderer-process-limit=1",
]
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
DESK: ViewportSize = {"width": 1400, "height": 860}
PHONE: ViewportSize = {"width": 390, "height": 844}
PATIENCE = 60_000  # milliseconds
ELSEWHERE = re.compile(r"^(?!http://127\.0\.0\.1:\d+/|file:///|data:)")
# What a page notices of a viewer that is being closed, or of a cut connection
DROPPED = re.compile(
    r"net::ERR_(CONNECTION|CONTENT_LENGTH|EMPTY|INCOMPLETE|SOCKET)|with a status of 503 "
)

expect.set_options(timeout=PATIENCE)


class Chromium:
    """The browser of a worker. While it is open, an event loop runs in this thread."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._browser: Browser | None = None
        self._desk: BrowserContext | None = None

    def open(self) -> Browser:
        """Return the browser, which is started if there is none."""
        if self._browser is None:
            playwright = self._stack.enter_context(sync_playwright())
            path = find_chromium()
            self._browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
            self._stack.callback(self._browser.close)
        return self._browser

    def desk(self) -> BrowserContext:
        """Return the context of most pages, which are opened one after another without motion.

        Its empty page stays, and with it a process that need not be started for each test.
        """
        if self._desk is None:
            self._desk = self.open().new_context(viewport=DESK, reduced_motion="reduce")
            self._desk.set_default_timeout(PATIENCE)
            self._desk.new_page()
        return self._desk

    def close(self) -> None:
        self._browser = self._desk = None
        self._stack.close()


def find_chromium() -> str:
    """Return the path of Chromium, or of what the environment says."""
    found = map(shutil.which, ("chromium-headless-shell", "chromium"))  # the first is the quicker
    path = os.environ.get("CHROMIUM") or next(filter(None, found), None)
    if not path:
        pytest.fail(
            "these tests look at the viewer in Chromium: apt-get install chromium-headless-shell,"
            " or set CHROMIUM to the path of one"
        )
    return path


CHROMIUM = Chromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """Close the browser before a test that is not of this folder: it may run an event loop."""
    try:
        return (yield)
    finally:
        if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
            CHROMIUM.close()


class Eyes:
    """Opens pages, and remembers what should not have happened on them."""

    def __init__(self, chromium: Chromium, name: str) -> None:
        self.complaints: list[str] = []
        self.pages: list[Page] = []
        self._chromium = chromium
        self._name = name
        self._contexts: list[BrowserContext] = []
        self._at_desk: Page | None = None
        self._origins: set[str] = set()

    def open(self, url: str, *, wide: bool = True, **options: Any) -> Page:
        """Open *url* at the width of a desk, or of a phone."""
        if wide and not options and self._at_desk is None:
            page = self._at_desk = self._chromium.desk().new_page()
        else:
            size = DESK if wide else PHONE
            context = self._chromium.open().new_context(viewport=size, **options)
            self._contexts.append(context)
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
        page.on("request", self._asked)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("response", self._responded)
        self.pages.append(page)
        page.goto(url)
        return page

    def picture(self, page: Page, name: str = "") -> Path:
        """Keep what a page looks like."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name or self._name}.png"
        page.screenshot(path=path, animations="disabled")
        return path

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        if self._at_desk is not None:
            self._forget(self._at_desk)
            self._at_desk.close()

    def _forget(self, page: Page) -> None:
        """Leave nothing that a page has kept for the pages of other tests."""
        session = page.context.new_cdp_session(page)
        for origin in self._origins:
            session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        session.detach()
        page.context.clear_cookies()

    def _asked(self, request: Request) -> None:
        self._origins.add("{0.scheme}://{0.netloc}".format(urlsplit(request.url)))
        if ELSEWHERE.match(request.url):
            self.complaints.append(f"asked for {request.url}")

    def _responded(self, response: Response) -> None:
        if response.status >= 500 and response.status != 503:
            self.complaints.append(f"{response.status} {response.url}")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not DROPPED.search(message.text):
            self.complaints.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def eyes(request: pytest.FixtureRequest) -> Iterator[Eyes]:
    """Pages of one test: none may ask for anything elsewhere, fail, or break its policy."""
    name = re.sub(r"\W+", "_", request.node.name).strip("_").removeprefix("test_")
    eyes = Eyes(CHROMIUM, name[:80])
    yield eyes
    eyes.close()
    assert eyes.complaints == []
