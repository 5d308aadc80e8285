"""One call in tabs: its conversation, its input and output, all of it as JSON, and what it used."""

import json
from typing import Any

from playwright.sync_api import Page, expect

from browser.conftest import Eyes
from browser.served_journal import call, calls, choose, open_run, staged, state
from treefold import AgentFunction, CodeFunction, ToolUse
from treefold.testing import ScriptedModel

CLIPBOARD = ["clipboard-read", "clipboard-write"]
READ = "() => navigator.clipboard.readText()"


def tab(page: Page, name: str) -> None:
    page.get_by_role("tablist", name="About this call").get_by_role("tab", name=name).click()


def opened(eyes: Eyes, stage: Any, **options: Any) -> Page:
    page = eyes.open(stage.url, **options)
    open_run(page)
    state(call(page, "publish"), "waits for you")
    return page


def test_a_call_is_shown_in_four_tabs(eyes: Eyes):
    with staged() as stage:
        stage.digest()
        page = opened(eyes, stage)
        detail = choose(page, "1.5")
        expect(detail.get_by_role("tabpanel", name="Conversation")).to_contain_text(
            "You write_digest texts."
        )
        tab(page, "Input and output")
        shown = detail.get_by_role("tabpanel", name="Input and output")
        expect(shown.get_by_text("One fact holds.")).to_be_visible()
        expect(detail.get_by_role("list", name="Transcript")).to_have_count(0)  # it is hidden
        tab(page, "Raw")
        shown = detail.get_by_role("tabpanel", name="Raw")
        assert json.loads(shown.locator("pre").inner_text())["fn"] == "write_digest"
        tab(page, "Usage")
        expect(detail.get_by_role("row", name="total")).to_contain_text("692")
        # The next call is shown with the same tab.
        choose(page, "1.4")
        expect(detail.get_by_role("row", name="total").first).to_contain_text("1,384")


def test_code_has_no_conversation_and_opens_with_its_output(eyes: Eyes):
    with staged() as stage:
        stage.digest()
        page = opened(eyes, stage)
        detail = choose(page, "1.1.1")
        tabs = detail.get_by_role("tablist", name="About this call").get_by_role("tab")
        expect(tabs).to_have_text(["Input and output", "Raw", "Usage"])
        expect(detail.get_by_text("Mill ponds")).to_be_visible()


def test_arrow_keys_move_between_the_tabs(eyes: Eyes):
    with staged() as stage:
        stage.digest()
        page = opened(eyes, stage)
        detail = choose(page, "1.5")
        detail.get_by_role("tab", name="Conversation").focus()
        for key, name in [
            ("ArrowRight", "Input and output"),
            ("End", "Usage"),
            ("ArrowRight", "Conversation"),
            ("ArrowLeft", "Usage"),
            ("Home", "Conversation"),
        ]:
            page.keyboard.press(key)
            chosen = detail.get_by_role("tab", name=name)
            expect(chosen).to_be_focused()
            expect(chosen).to_have_attribute("aria-selected", "true")
            expect(detail.get_by_role("tabpanel")).to_have_accessible_name(name)
        # The tabs of the run are not moved by that.
        expect(page.get_by_role("tab", name="Tree")).to_have_attribute("aria-selected", "true")


def test_texts_are_copied_whole(eyes: Eyes):
    text = "# Long\n" + "every word of it \u202e " * 5_000
    agent = AgentFunction(
        "agent", "Talks.", system_prompt="Talk.", user_prompt_template="Go.", uses=[]
    )
    with staged(agent, script=ScriptedModel(text)) as stage:
        stage.runtime.invoke(agent).result(60)
        page = eyes.open(stage.url, permissions=CLIPBOARD)
        open_run(page)
        detail = choose(page, "agent")
        part = detail.get_by_role("listitem").filter(has_text="model").first
        part.hover()
        part.get_by_role("button", name="Copy this model").click()
        page.wait_for_function("() => document.querySelector('.copied')")
        assert page.evaluate(READ) == text
        tab(page, "Input and output")
        detail.get_by_role("button", name="Copy the inputs").wait_for(state="detached")
        detail.get_by_role("button", name="Copy the output").click()
        page.wait_for_function("() => document.querySelector('.outputs .copied')")
        assert page.evaluate(READ).startswith("# Long\nevery word of it \u202e")


def test_a_returned_result_is_part_of_its_agent(eyes: Eyes):
    def note(ctx: Any, text: str) -> str:
        return text

    agent = AgentFunction(
        "count",
        "Counts.",
        system_prompt="Count.",
        user_prompt_template="Go.",
        uses=[CodeFunction(callable=note, name="note", repeatable=True)],
        returns=list[int],
    )
    script = ScriptedModel(
        [ToolUse("1", "note", {"text": "begun"})],
        [ToolUse("2", "return_result", {"result": "three"})],
        [ToolUse("3", "return_result", {"result": [1, 2, 3]})],
    )
    with staged(agent, script=script) as stage:
        assert stage.runtime.invoke(agent).result(60) == [1, 2, 3]
        page = eyes.open(stage.url)
        open_run(page)
        detail = choose(page, "count")
        returned = detail.get_by_role("listitem").filter(has_text="returned")
        expect(returned).to_contain_text("[1,2,3]")
        expect(returned.get_by_role("link")).to_have_count(0)
        # A result that was refused is shown as the call that it was.
        failed = calls(page).filter(has_text="return_result")
        expect(failed).to_have_count(1)
        state(failed, "error")
        assert calls(page).count() == 3
        expect(page.get_by_text("3 calls")).to_be_visible()
        eyes.picture(page)
        page.keyboard.press("/")
        page.keyboard.type("return_result")
        expect(page.get_by_text("2 found")).to_be_visible()  # the refused one, and the agent
