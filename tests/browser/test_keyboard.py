"""Everything can be done without a mouse, and heard without a screen."""

import re

from playwright.sync_api import Page, expect

from browser import newsroom
from browser.conftest import Eyes
from browser.served_journal import Stage, call, calls, choose, open_run, staged, state, when


def opened(eyes: Eyes, stage: Stage) -> Page:
    stage.digest(key="nightly")
    page = eyes.open(stage.url)
    open_run(page)
    state(call(page, "publish"), "waits for you")
    return page


def active(page: Page) -> str:
    """The path of the active row, by what assistive technology is told."""
    grid = page.get_by_role("treegrid")
    row = page.locator(f"[id='{grid.get_attribute('aria-activedescendant')}']")
    expect(row).to_have_attribute("aria-selected", "true")
    return row.locator(".path").inner_text()


def test_the_tree_is_walked_with_the_arrow_keys(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        grid = page.get_by_role("treegrid")
        grid.focus()
        page.keyboard.press("Home")
        assert active(page) == "1"
        walked: list[str] = []
        for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "End"):
            page.keyboard.press(key)
            walked.append(active(page))
        assert walked == ["1.1", "1.1.1", "1.2", "1.2", "1.1.1", "1.6"]
        page.keyboard.press("ArrowLeft")
        assert active(page) == "1"
        page.keyboard.press("ArrowLeft")
        expect(call(page, "digest")).to_have_attribute("aria-expanded", "false")
        expect(calls(page)).to_have_count(1)
        page.keyboard.press("ArrowRight")
        expect(call(page, "digest")).to_have_attribute("aria-expanded", "true")
        expect(calls(page)).to_have_count(11)  # the one below 1.2 is out of sight


def test_enter_goes_to_the_call_and_escape_comes_back(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        page.get_by_role("treegrid").focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        heading = page.get_by_role("complementary").get_by_role("heading", level=2)
        expect(heading).to_be_focused()
        expect(heading).to_contain_text("summarise")
        page.keyboard.press("Escape")
        expect(page.get_by_role("treegrid")).to_be_focused()


def test_a_run_is_opened_from_the_list_with_the_keyboard(eyes: Eyes):
    with staged() as stage:
        stage.digest(key="nightly")
        page = eyes.open(stage.url)
        expect(page.get_by_role("grid").get_by_text("nightly")).to_be_visible()
        page.get_by_role("grid").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page.get_by_role("treegrid")).to_be_visible()


def test_a_question_is_answered_with_the_keyboard(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        page.keyboard.press("n")
        detail = page.get_by_role("complementary")
        button = detail.get_by_role("button", name="hold it back")
        for _ in range(60):
            if button.evaluate("(one) => one === document.activeElement"):
                break
            page.keyboard.press("Tab")
        expect(button).to_be_focused()
        shadow = button.evaluate("(one) => getComputedStyle(one).outlineStyle")
        assert shadow == "solid"  # and it can be seen to be
        page.keyboard.press("Enter")
        state(call(page, "digest"), "success")


def test_slash_searches_and_escape_clears(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type("fifty minutes")  # only in what was said, and too far on for a row
        expect(page.get_by_text(re.compile(r"^\d+ found$"))).to_be_visible()
        expect(call(page, "write_digest")).to_be_visible()
        expect(calls(page).filter(has_text="look_up")).to_have_count(0)
        eyes.picture(page, "search")
        page.keyboard.press("Escape")
        expect(calls(page)).to_have_count(12)
        expect(page.get_by_role("treegrid")).to_be_focused()


def test_calls_are_filtered_by_their_state(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        page.get_by_role("button", name="error, 1").click()
        expect(page.get_by_text("1 found")).to_be_visible()
        expect(calls(page)).to_have_count(3)  # the others go a moment later
        assert [row.locator(".path").inner_text() for row in calls(page).all()] == [
            "1",
            "1.4",
            "1.4.2",
        ]
        eyes.picture(page, "filter")
        page.get_by_role("button", name="error, 1").click()
        expect(calls(page)).to_have_count(12)


def test_a_question_mark_lists_the_keys_and_escape_closes(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_tabs_are_turned_with_the_keyboard(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        page.get_by_role("tab", name="Tree").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="Timeline")).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("treegrid", name="Timeline of calls")).to_be_visible()
        page.keyboard.press("3")
        graph = page.get_by_role("application")
        expect(graph).to_be_visible()
        expect(page.locator(".frame").first).to_be_visible()
        graph.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        told = page.get_by_role("status").filter(has_text="of the run")
        expect(told).to_contain_text("1.2 summarise")
        page.keyboard.press("Enter")
        expect(page.get_by_role("complementary")).to_contain_text("tides.txt")


def test_the_width_beside_the_tree_is_changed_with_the_keyboard(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        splitter = page.get_by_role("separator")
        before = int(splitter.get_attribute("aria-valuenow") or "0")
        splitter.focus()
        page.keyboard.press("ArrowLeft")
        expect(splitter).to_have_attribute("aria-valuenow", str(before + 2))


def test_calls_of_a_model_lead_to_their_nodes_and_back(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        detail = choose(page, "1.4")
        detail.get_by_role("link", name="Go to the call 1.4.2").first.click()
        expect(detail.get_by_role("heading", level=2)).to_contain_text("look_up")
        expect(page.locator(".row.active")).to_contain_text("1.4.2")
        detail.get_by_role("navigation", name="Called by").get_by_role("link").last.click()
        expect(detail.get_by_role("heading", level=2)).to_contain_text("fact_check")
        expect(detail.locator(".pointed-at")).to_contain_text("mills had clocks")
        expect(detail.locator(".pointed-at")).to_be_in_viewport()
        page.go_back()
        expect(detail.get_by_role("heading", level=2)).to_contain_text("look_up")


def test_the_stack_of_a_call_is_shown(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        detail = choose(page, "publish")
        detail.get_by_text("Call stack").click()
        frames = detail.locator(".stack li")
        expect(frames).to_have_count(2)
        expect(frames.first).to_contain_text("digest")
        expect(frames.last).to_contain_text("publish")
        expect(frames.last).to_have_attribute("aria-current", "true")


def test_assistive_technology_is_told_what_is_there(eyes: Eyes):
    with staged() as stage:
        page = opened(eyes, stage)
        expect(page.locator("body")).to_match_aria_snapshot("""
          - banner:
            - 'link "treefold: all runs"'
            - status: program running
            - button "1 question for you"
            - button /Colours/
            - button "Keys"
          - main:
            - region /digest/:
              - link "All runs"
              - heading /digest/ [level=1]
              - group "Actions on this run":
                - button "Pause 1 digest"
                - button "Cancel 1 digest"
                - button "Fork… 1 digest"
              - button "Go to it"
              - tablist "Views of this run":
                - tab "Tree" [selected]
                - tab "Timeline"
                - tab "Flame graph"
              - searchbox
              - group "Show only calls in these states":
                - button "waits for you, 1"
              - tabpanel "Tree":
                - treegrid "Calls of this run":
                  - rowgroup:
                    - row:
                      - columnheader "Call"
                      - columnheader "Outcome"
                  - rowgroup:
                    - row /running 1 digest/ [expanded] [level=1]
                    - row /success 1.1 ∥1.3 agent summarise/ [expanded] [level=2]
              - separator "Width of the call details"
              - complementary "Call 1.6 publish":
                - navigation "Called by"
                - heading /publish/ [level=2]
                - article /Publish the digest on the front page/
        """)
        assert "Publish the digest" in page.locator("[aria-live=assertive]").inner_text()


def test_what_was_typed_is_not_lost_when_something_else_happens(eyes: Eyes):
    with staged(hooks=newsroom.APPROVED) as stage:
        stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        detail = choose(page, "1.4.1")
        detail.get_by_label("Reason to deny it").fill("wait for it")
        stage.runtime.invoke(newsroom.digest, newsroom.ARGS)
        when(page, lambda: len(stage.runtime.questions()) == 2)
        expect(page.get_by_role("button", name="2 questions for you")).to_be_visible()
        expect(detail.get_by_label("Reason to deny it")).to_have_value("wait for it")
