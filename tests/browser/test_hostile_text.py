"""Whatever functions and models say stays text: it runs nothing, loads nothing, turns nothing."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Eyes
from browser.served_journal import Stage, call, choose, gone, open_run, staged, state, when
from treefold import (
    AgentFunction,
    CodeFunction,
    FunctionArg,
    ModelText,
    Runtime,
    ThinkingPart,
    ToolUse,
)
from treefold.testing import ScriptedModel

MARKUP = (
    "<script>window.owned = 1; alert(1)</script>"
    '<img src=x onerror="window.owned = 1; alert(2)">'
    "<svg onload=alert(3)><iframe src='javascript:alert(4)'></iframe>"
    '"><style>body { display: none }</style><a href="javascript:alert(5)">free</a>'
    "</script></pre></textarea><!--<script>"
    "<img src='http://evil.example/pixel.png'><link rel=stylesheet href='//evil.example/x.css'>"
    "{{constructor.constructor('alert(6)')()}}"
)
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\x00\x08\x7f\x9b31m\r\nnext\rback"
TURNS = (
    "pay \u202e001\u202c to \u2066evil\u2069 \u200fx\u200e \ufeff\u00ad\u061c \u2028 \U000e0041."
)
JOINED = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 and \U0001f469\u200d\U0001f680"
ZALGO = "z" + "\u0301\u0489\u0334" * 200
HOSTILE = "\n".join([MARKUP, ESCAPES, TURNS, JOINED, ZALGO])


def hostile_tool(ctx: Any, text: str) -> str:
    if "fail" in text:
        raise ValueError(HOSTILE)
    return HOSTILE


tool = CodeFunction(callable=hostile_tool, name="tool", repeatable=True)
agent = AgentFunction(
    "agent",
    "Hostile.",
    args=[FunctionArg("text", str, "Anything")],
    system_prompt="Be hostile.",
    user_prompt_template="{text}",
    uses=[tool],
)


def model() -> ScriptedModel:
    return ScriptedModel(
        [
            ThinkingPart(HOSTILE),
            ModelText(HOSTILE),
            ToolUse("1", "tool", {"text": HOSTILE}),
            ToolUse("2", "tool", {"text": f"fail {HOSTILE}"}),
            ToolUse(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}),
        ],
        HOSTILE,
        name="<b>model</b>\u202e",
    )


def check_harmless(page: Page) -> None:
    """Nothing ran, nothing came into the document that the page did not put there."""
    assert page.evaluate("() => window.owned") is None
    foreign = "script:not([src]), img, iframe, style, object, embed, a[href^='javascript']"
    assert page.locator(f"body :is({foreign})").count() == 0
    assert page.locator("head style, head script:not([src])").count() == 0
    assert page.locator("body").is_visible()


def look_at_everything(page: Page, stage: Stage) -> None:
    open_run(page)
    state(call(page, "agent"), "success")
    for path in ("1", "1.1", "1.2"):
        choose(page, path)
        detail = page.get_by_role("complementary")
        for tab in detail.get_by_role("tab").all():
            tab.click()
            for summary in detail.locator("summary").filter(visible=True).all():
                summary.click()
            check_harmless(page)
        detail.get_by_role("tab").first.click()
    for tab in ("Timeline", "Flame graph", "Time and cost"):
        page.get_by_role("tab", name=tab).click()
        check_harmless(page)
    page.get_by_role("tab", name="Tree").click()


@pytest.mark.parametrize("wide", [True, False], ids=["wide", "narrow"])
def test_hostile_text_is_shown_as_text(eyes: Eyes, wide: bool):  # noqa: FBT001 - by pytest
    with staged(agent, script=model()) as stage:
        stage.runtime.invoke(agent, {"text": HOSTILE}, key=f"key {MARKUP}")
        page = eyes.open(stage.url, wide=wide)
        check_harmless(page)
        if wide:
            look_at_everything(page, stage)
            detail = choose(page, "1")
        else:
            open_run(page)
            state(call(page, "agent"), "success")
            call(page, "agent").click()
            detail = page.get_by_role("complementary")
        said = detail.get_by_label("Transcript").locator("li").filter(has_text="model").first
        expect(said).to_contain_text("<script>window.owned = 1; alert(1)</script>")
        expect(said).to_contain_text("\\x1b[2J\\x1b]0;owned\\x07")
        expect(said).to_contain_text("pay \\u202e001\\u202c to \\u2066evil\\u2069")
        expect(said).to_contain_text("\\u200f")
        expect(said).to_contain_text("\\U000e0041")
        expect(said).to_contain_text(JOINED)
        check_harmless(page)


def test_the_list_of_runs_and_the_dialogs_show_hostile_text_as_text(eyes: Eyes):
    with staged(agent, script=model()) as stage:
        first = stage.runtime.invoke(agent, {"text": HOSTILE}, key=f"key {MARKUP}")
        first.result(60)
        second = stage.runtime.invoke(agent, {"text": f"other {HOSTILE}"})
        page = eyes.open(stage.url)
        when(page, lambda: second.state.final)  # it fails: the script is over
        row = page.get_by_role("grid").get_by_role("row").filter(has_text="key ")
        expect(row.locator(".input")).to_contain_text("<script>")
        expect(row.locator(".model")).to_have_text("<b>model</b>\\u202e")
        check_harmless(page)
        open_run(page, "key ")
        choose(page, "1").get_by_role("button", name="Fork…").click()
        expect(page.get_by_label("What will be asked again")).to_contain_text("<b>model</b>")
        check_harmless(page)
        page.keyboard.press("Escape")
        page.goto(f"{stage.viewer.address}/#/compare/{first.path}/{second.path}")
        expect(page.locator("del.word").first).to_be_visible()
        check_harmless(page)


def test_a_question_with_hostile_text_and_choices_is_only_text(eyes: Eyes):
    async def ask(ctx: Any) -> str:
        return await ctx.ask(HOSTILE, [MARKUP, TURNS])

    function = CodeFunction(callable=ask, name="ask")
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        page = eyes.open(stage.url)
        page.get_by_role("button", name="1 question for you").click()
        panel = page.get_by_role("region", name="Open questions")
        check_harmless(page)
        eyes.picture(page)
        panel.get_by_role("button", name="pay").click()
        gone(panel)
        assert node.result(60) == TURNS
        check_harmless(page)


def test_ten_million_characters_on_one_line_do_not_stop_the_page(eyes: Eyes):
    line = "x" * 10_000_000 + "<b>the end</b>"
    # A model gets a part of such a result only, so the prompt has one as well.
    said = ScriptedModel([ToolUse("1", "tool", {"text": "long"})], "done")

    def give(ctx: Any, text: str) -> str:
        return line

    long_tool = CodeFunction(callable=give, name="tool", repeatable=True)
    top = AgentFunction(
        "agent",
        "Reads.",
        args=[FunctionArg("text", str, "Anything")],
        system_prompt="Read.",
        user_prompt_template="{text}",
        uses=[long_tool],
    )
    with staged(top, script=said) as stage:
        stage.runtime.invoke(top, {"text": line})
        page = eyes.open(stage.url)
        open_run(page)
        state(call(page, "agent"), "success")
        detail = choose(page, "1")
        button = detail.get_by_role("button", name="Show all 10,000,014 characters")
        button.click()
        expect(button).to_have_count(0)
        page.keyboard.press("Escape")
        page.evaluate("() => new Promise(requestAnimationFrame)")
        choose(page, "1.1")
        eyes.picture(page)
        assert page.locator("body").evaluate("(body) => body.innerText.length") < 1_000_000


@pytest.mark.parametrize(("scheme", "colours"), [("light", "#fff;#111"), ("dark", "#111;#ddd")])
def test_a_tree_in_a_notebook_folds_and_runs_nothing(
    eyes: Eyes, tmp_path: Path, scheme: str, colours: str
):
    with Runtime([agent], models=model()) as runtime:
        node = runtime.invoke(agent, {"text": HOSTILE})
        node.result()
        html = node._repr_html_()  # pyright: ignore[reportPrivateUsage]
    background, text = colours.split(";")
    file = tmp_path / f"{scheme}.html"
    style = f"background: {background}; color: {text}; width: 800px"
    file.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">{html}')
    page = eyes.open(file.as_uri())
    result = page.locator("summary", has_text="1.1 ").locator("..").locator("pre").first
    expect(result).not_to_be_visible()
    page.locator("summary", has_text="1.1 ").click()
    expect(result).to_be_visible()
    eyes.picture(page)
    assert page.evaluate("() => window.owned") is None
    assert page.locator("script, img, iframe, a, link").count() == 0
    assert page.locator("style").count() == 1
