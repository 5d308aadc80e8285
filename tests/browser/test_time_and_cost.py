"""Why a run took so long: split bars, the critical path, and sums for one run and for many."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.conftest import Eyes
from browser.served_journal import Stage, call, calls, choose, open_run, staged, state, when
from browser.test_export import ended, written
from treefold import Limits, NodeView, Provider
from treefold.views.timing import timing_of


def have_queued(digest: NodeView) -> bool:
    """Whether two of the three summaries have waited for the slot of the other long enough.

    That is as long as it took until both waited, so that they were open at the same time for half
    of their time at least, whatever else the machine did; and long enough to be seen.
    """
    timing = timing_of(digest)
    last = [timing.spans[child.id][-1] for child in digest.children if timing.spans[child.id]]
    queued = [span.start for span in last if span.kind == "queued"]
    if len(last) < 3 or len(queued) < 2:
        return False
    begun = min(timing.spans[child.id][0].start for child in digest.children)
    return time.time() - max(queued) > max(0.1, max(queued) - begun)


@contextmanager
def answered(eyes: Eyes) -> Generator[tuple[Stage, Page], None, None]:
    """A run of the newsroom that has waited for a slot and for a person, and has ended."""
    limits = Limits(8, per_provider={Provider.OpenAI: 1})
    with staged(pace=0.005, limits=limits) as stage:
        stage.model.gate.clear()
        node = stage.digest()
        page = eyes.open(stage.url)
        when(page, lambda: have_queued(stage.runtime.get_view(node.id)))
        stage.model.gate.set()
        when(page, stage.runtime.questions)
        page.wait_for_timeout(200)  # for the person to think, so that it can be seen
        stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
        node.result(60)
        yield stage, page


def bar(page: Page, text: str) -> Locator:
    return call(page, text).locator(".bar")


def test_bars_are_split_by_what_a_call_waited_for(eyes: Eyes):
    with answered(eyes) as (_, page):
        open_run(page)
        state(call(page, "digest"), "success")
        page.get_by_role("tab", name="Timeline").click()
        expect(bar(page, "write_digest").locator(".kind-model")).to_have_count(1)
        expect(bar(page, "publish").locator(".kind-person")).to_be_visible()
        assert page.locator(".bar .kind-queued").count() > 0
        title = bar(page, "publish").get_attribute("title") or ""
        assert "person " in title
        assert "on the critical path" in title
        legend = page.get_by_role("list", name="Kinds of time").get_by_role("listitem")
        assert legend.all_inner_texts() == [
            "model",
            "own code",
            "queued",
            "person",
            "no process",
            "calls below",
        ]
        # Of three summaries at a time, only one delayed the rest.
        summaries = calls(page).filter(has_text="summarise")
        expect(summaries).to_have_count(3)
        page.get_by_role("button", name="critical path only").click()
        expect(call(page, "publish")).to_be_visible()
        expect(call(page, "write_digest")).to_be_visible()
        expect(summaries).to_have_count(1)
        eyes.picture(page)


def test_a_run_says_where_its_time_and_money_went(eyes: Eyes):
    with answered(eyes) as (_, page):
        open_run(page)
        state(call(page, "digest"), "success")
        page.keyboard.press("4")
        panel = page.get_by_role("tabpanel", name="Time and cost")
        kinds = panel.locator(".split-list li")
        expect(kinds.filter(has_text="person")).to_be_visible()
        expect(kinds.filter(has_text="model")).to_be_visible()
        functions = panel.get_by_role("region", name="By function")
        row = functions.get_by_role("row", name="summarise")
        expect(row).to_contain_text("4,152")
        expect(row).to_contain_text("$0.0125")
        models = panel.get_by_role("region", name="By model")
        expect(models.get_by_role("row").last).to_contain_text("6,228")
        functions.get_by_role("button", name="Cost").click()
        expect(functions.get_by_role("columnheader", name="Cost")).to_have_attribute(
            "aria-sort", "descending"
        )
        expect(functions.get_by_role("row").nth(1)).to_contain_text("summarise")
        expect(functions.get_by_role("button", name="Cost")).to_be_focused()
        # What took longest leads to the call.
        panel.get_by_role("link", name="publish").first.click()
        detail = page.get_by_role("complementary")
        expect(detail.get_by_role("heading", level=2)).to_contain_text("publish")
        expect(page.get_by_role("tab", name="Time and cost")).to_have_attribute(
            "aria-selected", "true"
        )
        detail.get_by_role("tab", name="Usage").click()
        expect(detail.get_by_text("on the critical path of the run")).to_be_visible()


def test_many_runs_are_summed(eyes: Eyes):
    with answered(eyes) as (stage, page):
        stage.digest()
        when(page, stage.runtime.questions)
        page.get_by_role("link", name="Time and cost of many runs").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Time and cost")
        expect(page.get_by_text("2 runs of 2, 24 calls")).to_be_visible()
        row = page.get_by_role("region", name="By function").get_by_role("row", name="summarise")
        expect(row).to_contain_text("8,304")
        page.get_by_label("How many runs").select_option("10")
        expect(page.get_by_text("2 runs of 2, 24 calls")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", level=1)).not_to_have_text("Time and cost")


@pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])
def test_a_file_says_it_too(eyes: Eyes, tmp_path: Path, wide: bool):  # noqa: FBT001 - by pytest
    with answered(eyes) as (stage, _):
        url = written(tmp_path / "run.html", stage.runtime.store, 1, ended(1))
    page = eyes.open(f"{url}#/run/1/timeline", wide=wide)
    expect(bar(page, "publish").locator(".kind-person")).to_be_visible()
    page.get_by_role("tab", name="Time and cost").click()
    expect(page.get_by_role("region", name="By model")).to_contain_text("6,228")
    assert page.get_by_role("link", name="Time and cost of many runs").count() == 0
    if wide:
        page.get_by_role("tab", name="Tree").click()
        detail = choose(page, "1.5")
        detail.get_by_role("tab", name="Usage").click()
        expect(detail.locator(".split-list")).to_contain_text("model")


def test_an_open_run_is_timed_until_now(eyes: Eyes):
    with staged() as stage:
        stage.model.gate.clear()
        stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        page.get_by_role("tab", name="Timeline").click()
        open_bar = bar(page, "(text='ponds.txt')").locator(".kind-model").first
        expect(open_bar).to_be_visible()
        stage.model.gate.set()
        state(call(page, "publish"), "waits for you")
        expect(bar(page, "publish").locator(".kind-person")).to_be_visible()
