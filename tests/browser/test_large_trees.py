"""Thousands of calls are scrolled through, and the page stays small and quick."""

import asyncio
import threading
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Eyes
from browser.served_journal import call, calls, staged, state
from treefold import CodeFunction, MemoryStore, RunContext, Runtime
from treefold.views.web import view

GROUPS, EACH = 40, 49  # with the groups and the top, 2,001 calls


def leaf(ctx: RunContext, n: int) -> int:
    return n * n


square = CodeFunction(callable=leaf, name="square", repeatable=True)


async def many(ctx: RunContext, group: int) -> int:
    nodes = [ctx.invoke(square, {"n": group * EACH + n}) for n in range(EACH)]
    return sum([await node for node in nodes])


group = CodeFunction(callable=many, name="group", uses=[square])


async def all_groups(ctx: RunContext) -> int:
    nodes = [ctx.invoke(group, {"group": n}) for n in range(GROUPS)]
    return sum([await node for node in nodes])


large = CodeFunction(callable=all_groups, name="large", uses=[group])

PAINTED = """() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0"""

# Frames that took long while scrolling through everything: the longest, in milliseconds.
SCROLL = """async (grid) => {
  const gaps = [];
  let last = performance.now();
  const step = grid.scrollHeight / 120;
  for (let at = 0; at < 120; at += 1) {
    grid.scrollTop = at * step;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    if (!grid.querySelector('.row')) throw new Error('nothing to be seen');
  }
  gaps.sort((a, b) => a - b);
  return { median: gaps[60], longest: gaps[119] };
}"""


@pytest.fixture(scope="module")
def two_thousand() -> Any:
    """A run of 2,001 calls, and its address."""
    store = MemoryStore()
    with Runtime([large], store=store) as runtime:
        node = runtime.invoke(large)
        node.result(60)
        with view(runtime, port=0) as viewer:
            yield viewer, node.path


def opened(eyes: Eyes, two_thousand: Any, place: str = "") -> Page:
    viewer, run = two_thousand
    page = eyes.open(viewer.url)
    page.goto(f"{viewer.address}/#/run/{run}{place}")
    return page


def test_only_what_is_in_sight_is_in_the_document(eyes: Eyes, two_thousand: Any):
    page = opened(eyes, two_thousand)
    grid = page.get_by_role("treegrid")
    expect(grid).to_have_attribute("aria-rowcount", "2002")
    assert calls(page).count() < 80
    grid.focus()
    page.keyboard.press("End")
    expect(page.locator(".row.active")).to_contain_text("1.40.49")
    expect(page.locator(".row.active")).to_be_in_viewport()
    assert calls(page).count() < 80
    row = page.locator(".row.active")
    expect(row).to_have_attribute("aria-level", "3")
    expect(row).to_have_attribute("aria-posinset", "49")
    expect(row).to_have_attribute("aria-setsize", "49")
    expect(row).to_have_attribute("aria-rowindex", "2002")


def test_scrolling_through_all_of_it_always_shows_rows(
    eyes: Eyes, two_thousand: Any, record_property: Any
):
    page = opened(eyes, two_thousand)
    grid = page.get_by_role("treegrid")
    expect(grid).to_have_attribute("aria-rowcount", "2002")
    frames = grid.evaluate(SCROLL)
    record_property("milliseconds of a frame while scrolling", frames)
    record_property("milliseconds to the first paint", page.evaluate(PAINTED))
    expect(calls(page).last).to_be_visible()


def test_a_search_finds_one_among_thousands(eyes: Eyes, two_thousand: Any):
    page = opened(eyes, two_thousand)
    state(call(page, "large"), "success")
    page.keyboard.press("/")
    page.keyboard.type("n=1321")
    expect(page.get_by_text("1 found")).to_be_visible()
    expect(calls(page)).to_have_count(3)  # the others go a moment later
    assert [row.inner_text().split()[0] for row in calls(page).all()] == ["1", "1.27", "1.27.48"]
    page.keyboard.press("Escape")
    expect(page.get_by_role("treegrid")).to_have_attribute("aria-rowcount", "2002")


def test_all_of_it_is_collapsed_and_expanded(eyes: Eyes, two_thousand: Any):
    page = opened(eyes, two_thousand)
    grid = page.get_by_role("treegrid")
    state(call(page, "large"), "success")
    page.get_by_role("button", name="Collapse all").click()
    expect(grid).to_have_attribute("aria-rowcount", "42")
    page.get_by_role("button", name="Expand all").click()
    expect(grid).to_have_attribute("aria-rowcount", "2002")


def test_a_flame_graph_draws_what_can_be_seen(eyes: Eyes, two_thousand: Any):
    page = opened(eyes, two_thousand, "/flame")
    expect(page.locator(".frame").first).to_be_visible()
    assert page.locator(".frame").count() < 1_200
    page.get_by_role("button", name="As a table").click()
    expect(page.get_by_role("row").filter(has_text="square")).to_contain_text("1960")


def test_a_timeline_has_only_rows_in_sight(eyes: Eyes, two_thousand: Any, record_property: Any):
    page = opened(eyes, two_thousand, "/timeline")
    grid = page.get_by_role("treegrid")
    expect(grid).to_have_attribute("aria-rowcount", "2002")
    expect(page.locator(".bar.parted").first).to_be_visible()
    assert calls(page).count() < 80
    record_property("milliseconds of a frame while scrolling", grid.evaluate(SCROLL))
    assert page.locator(".bar > *").count() < 1_000
    page.get_by_role("button", name="critical path only").click()
    expect(grid).not_to_have_attribute("aria-rowcount", "2002")
    expect(calls(page).first).to_be_visible()


def test_time_and_cost_of_thousands_of_calls_are_summed(eyes: Eyes, two_thousand: Any):
    page = opened(eyes, two_thousand, "/time")
    expect(page.get_by_role("row", name="square")).to_contain_text("1,960")


def test_thousands_of_calls_that_come_in_live_are_shown(eyes: Eyes):
    begin = threading.Event()

    async def gated(ctx: RunContext) -> int:
        await asyncio.to_thread(begin.wait, 30)
        return await ctx.invoke(large)

    top = CodeFunction(callable=gated, name="gated", uses=[large])
    with staged(top) as stage:
        node = stage.runtime.invoke(top)
        page = eyes.open(stage.url)
        page.goto(f"{stage.viewer.address}/#/run/{node.path}")
        state(call(page, "gated"), "running")
        begin.set()
        grid = page.get_by_role("treegrid")
        expect(grid).to_have_attribute("aria-rowcount", "2003", timeout=60_000)
        state(call(page, "gated"), "success")
