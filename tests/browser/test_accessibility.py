"""Contrast, names and roles on every screen, as axe-core judges them: there is no violation."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser import newsroom
from browser.axe import violations
from browser.conftest import Eyes
from browser.served_journal import at_rest, call, choose, open_run, redrawn, staged, state
from browser.test_appearance import failing, several
from browser.test_export import asked, written


def check(page: Page, where: str) -> None:
    """Nothing on the page is wrong."""
    at_rest(page)
    found = violations(page)
    assert found == [], (where, found)


def check_light_and_dark(page: Page, where: str) -> None:
    """Nothing is wrong in light, nor are the colours in dark."""
    check(page, where)
    page.emulate_media(color_scheme="dark")
    redrawn(page)
    found = violations(page, "color-contrast", "link-in-text-block")
    assert found == [], (where, "dark", found)
    page.emulate_media(color_scheme="light")


# Contrast is looked at for either scheme at either width by test_appearance.py, too.
@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("narrow", "dark")])
def test_no_screen_has_a_violation(eyes: Eyes, size: str, scheme: str):
    with staged(newsroom.digest, failing, pace=0.001) as stage:
        wide = size == "wide"
        page = eyes.open(stage.url, wide=wide, color_scheme=scheme, reduced_motion="reduce")
        several(stage, page)
        expect(page.get_by_role("button", name="2 questions for you")).to_be_visible()
        check(page, "runs")
        page.get_by_role("button", name="canceled, 1").click()
        expect(page.get_by_text("1 of 5 runs")).to_be_visible()
        check(page, "filtered runs")
        page.get_by_role("button", name="canceled, 1").click()
        page.get_by_role("button", name="2 questions for you").click()
        check(page, "questions")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Keys").click()
        check(page, "keys")
        page.keyboard.press("Escape")
        open_run(page, "fork of run 1")
        state(call(page, "publish"), "waits for you")
        for tab in page.get_by_role("tablist", name="Views of this run").get_by_role("tab").all():
            tab.click()
            check(page, f"run, {tab.inner_text()}")
        page.get_by_role("tab", name="Tree").click()
        detail = choose(page, "fact_check")
        for tab in detail.get_by_role("tab").all():
            tab.click()
            check(page, f"call, {tab.inner_text()}")
        detail.get_by_role("button", name="Fork…").click()
        expect(page.get_by_label("What will be asked again")).to_contain_text("last time")
        check(page, "fork dialog")
        page.keyboard.press("Escape")
        page.goto(f"{stage.viewer.address}/#/run/1")
        page.get_by_role("button", name="Compare…").click()
        expect(page.get_by_role("dialog").get_by_role("option").first).to_be_attached()
        check(page, "compare dialog")
        page.keyboard.press("Escape")
        page.goto(f"{stage.viewer.address}/#/compare/1/2")
        expect(page.locator(".one-side").first).to_be_visible()
        check(page, "compare")
        page.goto(f"{stage.viewer.address}/#/totals")
        expect(page.get_by_role("table").first).to_be_visible()
        check(page, "totals")


def test_a_call_that_asks_or_failed_has_no_violation(eyes: Eyes):
    with staged(newsroom.digest, failing, hooks=newsroom.APPROVED) as stage:
        page = eyes.open(stage.url, color_scheme="light", reduced_motion="reduce")
        asking = stage.digest(key="asked")
        page.goto(f"{stage.viewer.address}/#/run/{asking.path}")
        state(call(page, "look_up"), "waits for you")
        detail = choose(page, "look_up")
        check_light_and_dark(page, "approval")
        detail.get_by_text("Edit the arguments").click()
        check_light_and_dark(page, "approval with arguments")
        detail.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        check_light_and_dark(page, "cancel dialog")
        page.keyboard.press("Escape")
        stage.runtime.invoke(failing, {"city": "Ulm"}, key="delivery")
        page.goto(f"{stage.viewer.address}/#/")
        open_run(page, "delivery")
        state(call(page, "deliver"), "error")
        check_light_and_dark(page, "failed call")


def test_a_file_has_no_violation(eyes: Eyes, tmp_path: Path):
    with staged() as stage:
        node = stage.digest(key="nightly")
        url = written(tmp_path / "run.html", stage.runtime.store, node.id, asked)
    page = eyes.open(url, color_scheme="light", reduced_motion="reduce")
    state(call(page, "publish"), "waits for you")
    check_light_and_dark(page, "run")
    page.goto(f"{url}#/")
    expect(page.get_by_role("grid")).to_contain_text("examples/texts")
    check_light_and_dark(page, "runs")
