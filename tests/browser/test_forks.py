"""Forks: what is shared is marked, what will be asked again is said, and two runs are compared."""

import re

from playwright.sync_api import Page, expect

from browser.conftest import Eyes
from browser.served_journal import Stage, call, calls, choose, open_run, staged, state, when
from treefold import AgentFunction, Edit, FunctionArg
from treefold.testing import ScriptedModel, ScriptedRequest


def published(stage: Stage, page: Page) -> int:
    """Run the program of the newsroom to its end."""
    node = stage.digest(key="monday")
    when(page, stage.runtime.questions)
    stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
    node.result(60)
    return node.id


def test_the_dialog_says_what_will_be_asked_again_and_what_it_cost(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        published(stage, page)
        open_run(page, "monday")
        detail = choose(page, "fact_check")
        detail.get_by_role("button", name="Fork… 1.4 fact_check").click()
        dialog = page.get_by_role("dialog")
        plan = dialog.get_by_label("What will be asked again")
        expect(plan).to_contain_text("3 responses of the model; last time 2,076 tokens, $0.0062.")
        rows = plan.get_by_role("row").filter(has=page.get_by_role("rowheader"))
        expect(rows).to_have_text(
            [
                re.compile(r"fact_check\s*claude-opus-4-1\s*2\s*1,384\s*\$0\.0042"),
                re.compile(r"write_digest\s*claude-opus-4-1\s*1\s*692\s*\$0\.0021"),
            ],
            use_inner_text=True,
        )
        expect(plan).to_contain_text("Run again: look_up \u00d7 2, publish.")
        expect(plan).to_contain_text("6 calls are shared with this run, at no cost.")
        eyes.picture(page, "fork_dialog_wide_light")
        dialog.get_by_label("Continue from a step").check()
        dialog.get_by_label("Step", exact=True).select_option("after response 1 of 2")
        expect(plan).to_contain_text("2 responses of the model")
        dialog.get_by_label("Set the result").check()
        expect(plan).to_contain_text("1 response of the model")


def test_a_fork_marks_shared_calls_and_leads_to_them(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        published(stage, page)
        open_run(page, "monday")
        detail = choose(page, "fact_check")
        detail.get_by_role("button", name="Fork… 1.4 fact_check").click()
        page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
        expect(page.get_by_text("Fork started.")).to_be_visible()
        expect(page.get_by_role("link", name="fork of run 1")).to_be_visible()
        expect(page.get_by_text("6 calls shared with run 1")).to_be_visible()
        state(call(page, "publish"), "waits for you")
        marks = calls(page).get_by_role("img", name="shared with run 1")
        expect(marks).to_have_count(6)
        expect(call(page, "fact_check").get_by_role("img", name="shared")).to_have_count(0)
        eyes.picture(page, "fork_wide_light")
        call(page, "summarise(text='wheels.txt')").get_by_role(
            "img", name="shared with run 1"
        ).click()
        expect(page.get_by_role("complementary").get_by_role("heading", level=2)).to_contain_text(
            "1.3"
        )
        expect(page).to_have_url(re.compile(r"#/run/1\?call=1\.3$"))
        page.go_back()
        choose(page, "summarise(text='tides.txt')")
        page.keyboard.press("s")
        expect(page).to_have_url(re.compile(r"#/run/1\?call=1\.2$"))


def test_two_runs_are_compared_word_by_word_with_what_they_took(eyes: Eyes):
    def reply(request: ScriptedRequest) -> str:
        asked = str(request.transcript[0])
        word = "grey" if "winter" in asked else "blue"
        return f"The sea is {word} today, <b>they say</b>."

    model = ScriptedModel(reply, name="claude-opus-4-1")
    paint = AgentFunction(
        "paint",
        "Say a colour.",
        args=[FunctionArg("season", str, "When")],
        system_prompt="You name colours.",
        user_prompt_template="What colour has the sea in {season}?",
    )
    with staged(paint, script=model) as stage:
        first = stage.runtime.invoke(paint, {"season": "summer"})
        first.result(60)
        prompt = "What colour has the sea in winter, and why?"
        second = stage.runtime.fork(first.id, edit=Edit(prompt=prompt))
        second.result(60)
        page = eyes.open(stage.url)
        page.goto(f"{stage.viewer.address}/#/compare/{first.path}/{second.path}")
        sides = page.locator(".one-side")
        expect(sides.first.locator("[data-part=result] del")).to_have_text(["blue"])
        expect(sides.last.locator("[data-part=result] ins")).to_have_text(["grey"])
        expect(sides.first.locator("[data-part=transcript] del")).to_have_text(["summer", "blue"])
        expect(sides.last.locator("[data-part=transcript] ins")).to_have_text([
            "winter, and why",
            "grey",
        ])
        expect(sides.last.locator("[data-part=result]")).to_contain_text("<b>they say</b>")
        deltas = page.get_by_role("table", name="Both runs with all their calls")
        expect(deltas.get_by_role("row").nth(1)).to_contain_text("Tokens")
        expect(deltas).to_contain_text("Difference")
        eyes.picture(page, "compare_words_wide_light")
