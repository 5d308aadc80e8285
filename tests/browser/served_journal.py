"""What the tests of the page share: a journal that is written and served, and rows on a screen."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page, expect

from browser import newsroom
from browser.newsroom import PacedModel
from treefold import Function, MemoryStore, Node, Runtime
from treefold.stores import Store
from treefold.testing import ScriptedModel
from treefold.views.web import Viewer, view

DRAW = """async (frames) => {
  for (let n = 0; n < frames; n += 1) await new Promise(requestAnimationFrame);
}"""


@dataclass(frozen=True)
class Stage:
    """A program that runs, and the viewer that shows it."""

    runtime: Runtime
    viewer: Viewer
    model: PacedModel

    @property
    def url(self) -> str:
        return self.viewer.url

    def digest(self, **options: Any) -> Node:
        """Start the program of the newsroom."""
        return self.runtime.invoke(newsroom.digest, newsroom.ARGS, **options)


@contextmanager
def staged(
    *functions: Function,
    pace: float = 0.0,
    store: Store | None = None,
    script: ScriptedModel | None = None,
    **options: Any,
) -> Generator[Stage, None, None]:
    """Run a program, by default that of the newsroom, and serve what is seen of it."""
    model = newsroom.model(pace) if script is None else PacedModel(script, pace)
    kept = store or MemoryStore()
    with (
        Runtime(functions or [newsroom.digest], models=model, store=kept, **options) as runtime,
        view(runtime, port=0) as viewer,
    ):
        yield Stage(runtime, viewer, model)


def calls(page: Page) -> Locator:
    """The rows of the tree."""
    return page.get_by_role("treegrid").get_by_role("row").filter(has=page.get_by_role("rowheader"))


def call(page: Page, text: str) -> Locator:
    """The first row that has *text* in its call."""
    return calls(page).filter(has=page.get_by_role("rowheader").filter(has_text=text)).first


def open_run(page: Page, text: str = "") -> None:
    """Open the newest run from the list."""
    rows = page.get_by_role("grid").get_by_role("row").filter(has=page.get_by_role("rowheader"))
    rows.filter(has_text=text).first.click()
    expect(page.get_by_role("treegrid")).to_be_visible()


def choose(page: Page, text: str) -> Locator:
    """Click on a row of the tree; gives what is shown of that call."""
    detail = page.get_by_role("complementary")
    heading = expect(detail.get_by_role("heading", level=2))
    for _ in range(20):
        call(page, text).click()
        with suppress(AssertionError):  # while a tree grows, another row may be there by now
            heading.to_contain_text(text.partition("(")[0], timeout=3_000)
            return detail
    raise AssertionError(f"{text} could not be chosen")


def state(row: Locator, word: str) -> None:
    """Wait until a row says that its call is in a state."""
    expect(row.get_by_role("img", name=word, exact=True)).to_be_visible()


def gone(locator: Locator) -> None:
    """Wait until nothing of it is to be seen; unlike ``to_be_hidden`` it may match several."""
    expect(locator.filter(visible=True)).to_have_count(0)


def at_rest(page: Page) -> None:
    """Let the page draw some frames, as it does in a tenth of a second: what it asked for is here.

    On a busy machine these take longer, as all does.
    """
    page.evaluate(DRAW, 6)


def redrawn(page: Page) -> None:
    """Let the page draw what it knows."""
    page.evaluate(DRAW, 2)


def when(page: Page, condition: Callable[[], object], patience: float = 60.0) -> None:
    """Wait until something holds outside of the page, which lives on meanwhile."""
    for _ in range(int(patience / 0.02)):
        if condition():
            return
        page.wait_for_timeout(20)
    raise AssertionError("it never happened")
