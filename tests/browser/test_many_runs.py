"""Ten thousand runs are listed, filtered and paged through, and few of them are read."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from browser import newsroom
from browser.axe import violations
from browser.conftest import Eyes
from browser.many_runs import copy_into, recorded
from browser.test_large_trees import SCROLL
from treefold import CodeFunction, MemoryStore, RunContext
from treefold.stores import Entry
from treefold.views.web import Viewer, view

RUNS = 10_000


class CountingStore(MemoryStore):
    """Counts the trees that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[int] = set()

    def entries(self, tree: int, *, after: int = 0) -> list[Entry]:
        self.read.add(tree)
        return super().entries(tree, after=after)


def _deliver(ctx: RunContext, city: str) -> str:
    raise ConnectionError(f"no road leads to {city}")


@pytest.fixture(scope="module")
def ten_thousand() -> Iterator[tuple[Viewer, CountingStore]]:
    """Runs in three functions in turn; every third failed."""
    deliver = CodeFunction(callable=_deliver, name="deliver")
    runs = [
        recorded(deliver, {"city": "Ulm"}),
        recorded(newsroom.fact_check, {"text": "Mills had clocks of their own."}),
        recorded(newsroom.write_digest, {"summaries": "Tides, ponds and wheels."}),
    ]
    store = CountingStore()
    store.join()
    copy_into(store, runs, RUNS)
    with view(store, port=0) as viewer:
        yield viewer, store
    store.close()


def listed(page: Page) -> Locator:
    return page.get_by_role("grid").get_by_role("row").filter(has=page.get_by_role("rowheader"))


def test_a_page_of_the_newest_is_shown_and_only_what_is_in_sight_is_read(
    eyes: Eyes, ten_thousand: tuple[Viewer, CountingStore]
):
    viewer, store = ten_thousand
    page = eyes.open(viewer.url)
    expect(page.get_by_text("10,000 runs")).to_be_visible()
    expect(page.get_by_text("1\u2013100 of 10,000")).to_be_visible()
    assert violations(page) == []
    first = listed(page).first
    expect(first).to_contain_text("job 10000")
    expect(first).to_contain_text("Mills had clocks of their own.")
    expect(first).to_contain_text("claude-opus-4-1")
    expect(first).to_contain_text("1.4k")
    expect(first).to_contain_text("$0.0042")
    assert len(store.read) < 100


def test_pages_lead_to_older_runs_and_back(eyes: Eyes, ten_thousand: tuple[Viewer, CountingStore]):
    viewer, _ = ten_thousand
    page = eyes.open(viewer.url)
    older = page.get_by_role("button", name="Older")
    older.click()
    expect(page.get_by_text("101\u2013200 of 10,000")).to_be_visible()
    expect(listed(page).first).to_contain_text("job 9900")
    assert "newest=" in page.url
    page.reload()
    expect(listed(page).first).to_contain_text("job 9900")
    page.get_by_role("button", name="Newest").click()
    expect(listed(page).first).to_contain_text("job 10000")
    expect(page.get_by_role("button", name="Newer")).to_be_disabled()
    page.goto(f"{viewer.address}/#/?page=100")
    expect(page.get_by_text("9,901\u201310,000 of 10,000")).to_be_visible()
    expect(older).to_be_disabled()


def test_a_page_of_older_runs_stays_when_there_is_a_new_one(eyes: Eyes):
    runs = [recorded(newsroom.write_digest, {"summaries": "Tides, ponds and wheels."})]
    store = MemoryStore()
    store.join()
    copy_into(store, runs, 205)
    with view(store, port=0) as viewer:
        page = eyes.open(viewer.url)
        page.get_by_role("button", name="Older").click()
        expect(listed(page).first).to_contain_text("job 105")
        copy_into(store, runs, 1, after=205)
        expect(page.get_by_text("206 runs")).to_be_visible()
        expect(page.get_by_text("101\u2013200 of 205")).to_be_visible()
        expect(listed(page).first).to_contain_text("job 105")
        page.get_by_role("button", name="Newest").click()
        expect(listed(page).first).to_contain_text("job 206")
    store.close()


def test_filters_by_state_and_function_say_how_many_there_are(
    eyes: Eyes, ten_thousand: tuple[Viewer, CountingStore]
):
    viewer, _ = ten_thousand
    page = eyes.open(viewer.url)
    page.get_by_role("button", name="error, 3333").click()
    expect(page.get_by_text("3,333 of 10,000 runs")).to_be_visible()
    expect(listed(page).first).to_contain_text("deliver")
    expect(listed(page).first).to_contain_text("Ulm")
    functions = page.get_by_label("Show only runs of this function")
    expect(functions.get_by_role("option")).to_have_text(["All functions", "deliver (3,333)"])
    page.get_by_role("button", name="error, 3333").click()
    functions.select_option("write_digest")
    expect(page.get_by_text("3,333 of 10,000 runs")).to_be_visible()
    expect(listed(page).first).to_contain_text("job 9998")
    listed(page).first.click()
    expect(page.get_by_role("treegrid")).to_be_visible()
    page.go_back()
    expect(functions).to_have_value("write_digest")
    expect(page.get_by_text("3,333 of 10,000 runs")).to_be_visible()


def test_one_run_is_found_among_thousands(eyes: Eyes, ten_thousand: tuple[Viewer, CountingStore]):
    viewer, _ = ten_thousand
    page = eyes.open(viewer.url)
    page.get_by_role("searchbox").fill("job 4321")
    expect(page.get_by_text("1 of 10,000 runs")).to_be_visible()
    expect(listed(page)).to_have_count(1)
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.get_by_text("No run matches.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(page.get_by_text("1\u2013100 of 10,000")).to_be_visible()


def test_scrolling_always_shows_rows_and_fills_them(
    eyes: Eyes, ten_thousand: tuple[Viewer, CountingStore], record_property: Any
):
    viewer, _ = ten_thousand
    page = eyes.open(viewer.url)
    expect(page.get_by_text("1\u2013100 of 10,000")).to_be_visible()
    grid = page.get_by_role("grid")
    record_property("milliseconds of a frame while scrolling", grid.evaluate(SCROLL))
    expect(listed(page).last).to_contain_text("job 9901")
    expect(listed(page).last).to_contain_text("claude-opus-4-1")
    assert listed(page).count() < 60


def test_another_run_to_compare_with_is_found_among_thousands(
    eyes: Eyes, ten_thousand: tuple[Viewer, CountingStore]
):
    viewer, _ = ten_thousand
    page = eyes.open(f"{viewer.url}")
    listed(page).first.click()
    page.get_by_role("button", name="Compare…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Find a run").fill("job 4321")
    expect(dialog.get_by_role("option")).to_have_count(1)
    dialog.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Run 4321 beside run 10000")
