"""What people see: light and dark, wide and narrow. The pictures are in build/screenshots."""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from browser import newsroom
from browser.conftest import SCREENSHOTS, Eyes
from browser.served_journal import (
    Stage,
    at_rest,
    call,
    choose,
    gone,
    open_run,
    redrawn,
    staged,
    state,
    when,
)
from treefold import CodeFunction, RunContext

# The smallest contrast of any text that can be seen, and where it is: as WCAG counts it.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (color, under) => {
    canvas.globalCompositeOperation = 'source-over';
    canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    const above = [];
    for (let one = element; one; one = one.parentElement)
      above.unshift(getComputedStyle(one).backgroundColor);
    let color = 'white';
    for (const next of above) color = `rgb(${rgba(next, color).slice(0, 3).join(' ')})`;
    return color;
  };
  let least = { ratio: 99, text: '' };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility()) continue;
    if (element.closest('.unseen, .sprite, .row.beside, [inert]')) continue;
    const under = ground(element);
    const a = light(rgba(getComputedStyle(element).color, under));
    const b = light(rgba(under, 'white'));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least.ratio) least = { ratio, text, where: element.className };
  }
  return least;
}"""

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "viewer.png"  # of the README
SCHEMES: Final = ("light", "dark")
SIDEWAYS = "() => document.scrollingElement.scrollWidth - innerWidth"


async def _failing(ctx: RunContext, city: str) -> str:
    raise ConnectionError(f"no road leads to {city}")


failing = CodeFunction(callable=_failing, name="deliver")


def several(stage: Stage, page: Page) -> None:
    """A journal with runs in several states."""
    first = stage.digest(key="monday")
    when(page, stage.runtime.questions)
    stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
    first.result(60)
    broken = stage.runtime.invoke(failing, {"city": "Ulm"}, key="delivery")
    when(page, lambda: broken.state.final)
    with pytest.raises(ConnectionError):
        broken.result(60)
    stopped = stage.digest(key="tuesday")
    when(page, stage.runtime.questions)
    stage.runtime.cancel(stopped.id, "not today")
    when(page, lambda: stopped.state.final)
    stage.digest(key="wednesday")
    when(page, stage.runtime.questions)
    stage.runtime.fork(first.id)
    when(page, lambda: len(stage.runtime.questions()) == 2)


def check(page: Page, eyes: Eyes, name: str) -> None:
    """Keep pictures; nothing is too faint to be read, light or dark, or wider than the screen."""
    at_rest(page)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        redrawn(page)
        eyes.picture(page, f"{name}_{scheme}")
        least = page.evaluate(CONTRAST)
        assert least["ratio"] >= 4.5, (scheme, least)
    assert page.evaluate(SIDEWAYS) <= 0
    if name == "call_wide" and "RENEW_PICTURES" in os.environ:  # as "make pictures" does
        PICTURE.parent.mkdir(exist_ok=True)
        shutil.copy(SCREENSHOTS / f"{name}_light.png", PICTURE)


@pytest.mark.parametrize("kind", ["wide", "narrow"])
def test_every_screen(eyes: Eyes, kind: str):
    with staged(newsroom.digest, failing, pace=0.001) as stage:
        page = eyes.open(stage.url, wide=kind == "wide", reduced_motion="reduce")
        several(stage, page)
        expect(page.get_by_role("button", name="2 questions for you")).to_be_visible()
        check(page, eyes, f"runs_{kind}")
        page.get_by_role("button", name="2 questions for you").click()
        check(page, eyes, f"questions_{kind}")
        page.keyboard.press("Escape")
        open_run(page, "wednesday")
        state(call(page, "publish"), "waits for you")
        check(page, eyes, f"tree_{kind}")
        for tab in ("Timeline", "Flame graph", "Time and cost"):
            page.get_by_role("tab", name=tab).click()
            expect(page.locator(".frame, .bar.parted, .split-bar").first).to_be_visible()
            check(page, eyes, f"{tab.partition(' ')[0].lower()}_{kind}")
        page.get_by_role("tab", name="Tree").click()
        detail = choose(page, "summarise")
        detail.locator("summary", has_text="characters").click()
        expect(detail.get_by_text("I should read it")).to_be_visible()
        check(page, eyes, f"call_{kind}")
        for name in ("Input and output", "Raw", "Usage"):
            detail.get_by_role("tab", name=name).click()
            check(page, eyes, f"call_{name.partition(' ')[0].lower()}_{kind}")
        page.goto(f"{stage.viewer.address}/#/totals")
        expect(page.get_by_role("table").first).to_contain_text("summarise")
        check(page, eyes, f"totals_{kind}")
        page.goto(f"{stage.viewer.address}/#/compare/1/2")
        expect(page.get_by_role("heading", level=1)).to_contain_text("beside run")
        check(page, eyes, f"compare_{kind}")


def test_the_switch_beats_the_system_and_is_kept(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url, color_scheme="light")
        ground = "() => getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        switch = page.get_by_role("button", name="Colours: as the system. Change them")
        switch.click()
        page.get_by_role("button", name="Colours: light. Change them").click()
        expect(page.get_by_role("button", name="Colours: dark. Change them")).to_be_visible()
        dark = page.evaluate(ground)
        assert dark != light
        page.reload()
        expect(page.get_by_role("button", name="Colours: dark. Change them")).to_be_visible()
        assert page.evaluate(ground) == dark


def test_a_phone_shows_one_thing_at_a_time_and_goes_back(eyes: Eyes):
    with staged() as stage:
        stage.digest(key="nightly")
        page = eyes.open(stage.url, wide=False, has_touch=True)
        open_run(page, "nightly")
        state(call(page, "publish"), "waits for you")
        expect(page.get_by_role("complementary")).to_have_count(0)
        call(page, "publish").tap()
        expect(page.get_by_role("complementary")).to_be_visible()
        gone(page.get_by_role("treegrid"))
        page.go_back()
        expect(page.get_by_role("treegrid")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("grid", name="Runs, the newest first")).to_be_visible()


def test_nothing_moves_for_those_who_want_that(eyes: Eyes):
    with staged() as stage:
        stage.model.gate.clear()
        stage.digest()
        page = eyes.open(stage.url, reduced_motion="reduce")
        open_run(page)
        state(call(page, "digest"), "running")
        moving = page.evaluate("() => document.getAnimations().length")
        stage.model.gate.set()
        assert moving == 0
