"""What can be asked for on the page is done."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import warm_python
from browser import newsroom
from browser.conftest import Eyes
from browser.served_journal import Stage, call, calls, choose, gone, open_run, staged, state, when
from treefold import CodeFunction, InDoubtError, NodeState, RunContext, SqliteStore

DIES = """
import os, sys
from treefold import CodeFunction, Runtime
def pay(ctx, amount: int) -> str:
    os._exit(7)
pay = CodeFunction(callable=pay)
with Runtime([pay], store=sys.argv[1]) as runtime:
    runtime.invoke(pay, {"amount": 3}).result(60)
"""


def asking(*choices: str) -> CodeFunction:
    async def ask(ctx: RunContext) -> str:
        return await ctx.ask("Which city?", list(choices))

    return CodeFunction(callable=ask, name="ask")


def dialog_button(page: Page, name: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def test_a_choice_is_made_with_a_button(eyes: Eyes):
    function = asking("Ulm", "Jena")
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        page = eyes.open(stage.url)
        open_run(page)
        page.get_by_role("button", name="Go to it").click()
        page.get_by_role("complementary").get_by_role("button", name="Jena").click()
        state(call(page, "ask"), "success")
        gone(page.get_by_role("button", name="1 question for you"))
        assert node.result(60) == "Jena"


def test_a_question_is_answered_in_words_wherever_one_is(eyes: Eyes):
    function = asking()
    with staged(function) as stage:
        node = stage.runtime.invoke(function)
        page = eyes.open(stage.url)
        page.get_by_role("button", name="1 question for you").click()
        panel = page.get_by_role("region", name="Open questions")
        panel.get_by_label("Your answer").fill("Ulm\non the river")
        eyes.picture(page)
        panel.get_by_label("Your answer").press("Control+Enter")
        gone(panel)
        assert node.result(60) == "Ulm\non the river"


def approving(stage: Stage, page: Page) -> None:
    """Come to the first call that has to be allowed."""
    stage.digest()
    open_run(page)
    choose(page, "1.4.1")


def said_of(stage: Stage, path: str) -> Any:
    views = [stage.runtime.get_view(stage.runtime.list_toplevel()[0].id)]
    while views:
        one = views.pop()
        if one.path == path:
            return one
        views.extend(one.children)
    raise AssertionError(path)


def test_a_call_is_allowed(eyes: Eyes):
    with staged(hooks=newsroom.APPROVED) as stage:
        page = eyes.open(stage.url)
        approving(stage, page)
        detail = page.get_by_role("complementary")
        expect(detail.get_by_text("May it look this up in the almanac?")).to_be_visible()
        detail.get_by_role("button", name="Allow", exact=True).click()
        state(call(page, "the moon rises"), "success")


def test_a_call_is_denied_and_the_model_is_told_why(eyes: Eyes):
    with staged(hooks=newsroom.APPROVED) as stage:
        page = eyes.open(stage.url)
        approving(stage, page)
        detail = page.get_by_role("complementary")
        detail.get_by_label("Reason to deny it").fill("not on a Sunday")
        eyes.picture(page)
        detail.get_by_role("button", name="Deny").click()
        state(call(page, "the moon rises"), "error")
        expect(call(page, "the moon rises")).to_contain_text("not on a Sunday")


def test_a_call_is_allowed_with_other_arguments(eyes: Eyes):
    with staged(hooks=newsroom.APPROVED) as stage:
        page = eyes.open(stage.url)
        approving(stage, page)
        detail = page.get_by_role("complementary")
        detail.get_by_text("Edit the arguments").click()
        arguments = detail.get_by_label("Arguments as JSON")
        expect(arguments).to_have_value(
            '{\n  "fact": "the moon rises 50 minutes later each day"\n}'
        )
        arguments.fill('{"fact": ')
        detail.get_by_role("button", name="Allow with these arguments").click()
        expect(detail.get_by_role("alert")).to_contain_text("This is not JSON")
        eyes.picture(page)
        arguments.fill('{"fact": "clocks are late"}')
        detail.get_by_role("button", name="Allow with these arguments").click()
        state(calls(page).filter(has_text="1.4.1"), "error")
        # The journal has the end of a call a moment before the runtime does.
        when(page, lambda: said_of(stage, "1.4.1").state.final)
        view = said_of(stage, "1.4.1")
        assert str(view.exception) == "LookupError: the almanac has no page on 'clocks are late'"


@pytest.mark.parametrize("how", ["retry", "use", "empty", "fail"])
def test_a_call_whose_end_is_unknown_is_decided_upon(eyes: Eyes, tmp_path: Path, how: str):
    path = tmp_path / "run.db"
    died = subprocess.run(warm_python.command("-c", DIES, str(path)), check=False, timeout=60)
    assert died.returncode == 7

    def pay(ctx: RunContext, amount: int) -> str:
        return f"paid {amount}"

    with staged(CodeFunction(callable=pay), store=SqliteStore(path)) as stage:
        page = eyes.open(stage.url)
        open_run(page)
        detail = choose(page, "pay")
        detail.get_by_role("button", name="Use a result").click()
        expect(detail.get_by_role("alert")).to_contain_text("Enter the result that it had")
        expect(detail.get_by_label("The result it had")).to_be_focused()
        eyes.picture(page, "in_doubt")
        if how != "empty":
            detail.get_by_label("The result it had").fill("it was paid")
            gone(detail.get_by_role("button", name="Use an empty text"))
        detail.get_by_label("Why it fails").fill("the bank says no")
        [node] = stage.runtime.recover()
        button = {
            "retry": "Run it again",
            "use": "Use a result",
            "empty": "Use an empty text",
            "fail": "Let it fail",
        }[how]
        detail.get_by_role("button", name=button).click()
        state(call(page, "pay"), "error" if how == "fail" else "success")
        if how == "fail":
            with pytest.raises(InDoubtError, match="the bank says no"):
                node.result(60)
        else:
            assert node.result(60) == {"retry": "paid 3", "use": "it was paid", "empty": ""}[how]


def test_a_run_is_paused_and_goes_on(eyes: Eyes):
    with staged() as stage:
        stage.model.gate.clear()
        stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        state(call(page, "1.1"), "running")
        actions = page.get_by_role("group", name="Actions on this run")
        actions.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("will pause before its next request or call.")).to_be_visible()
        expect(actions.get_by_role("button", name="Resume")).to_be_visible()
        stage.model.gate.set()
        state(call(page, "1.1"), "paused")
        eyes.picture(page, "paused")
        actions.get_by_role("button", name="Resume").click()
        state(call(page, "publish"), "waits for you")


def test_a_call_is_paused_and_cancelled_from_its_question(eyes: Eyes):
    with staged() as stage:
        stage.model.gate.clear()
        stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        detail = choose(page, "1.2")
        detail.get_by_role("button", name="Pause").click()
        expect(detail.get_by_role("button", name="Resume 1.2")).to_be_visible()
        stage.model.gate.set()
        detail.get_by_role("button", name="Cancel the call").click()
        dialog_button(page, "Close")
        expect(page.get_by_role("dialog")).to_have_count(0)
        detail.get_by_role("button", name="Cancel the call").click()
        eyes.picture(page, "cancel")
        dialog_button(page, "Cancel the call")
        state(call(page, "1.2"), "canceled")


def test_a_run_is_cancelled_with_a_reason(eyes: Eyes):
    with staged() as stage:
        node = stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        state(call(page, "publish"), "waits for you")
        actions = page.get_by_role("group", name="Actions on this run")
        actions.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("dialog")).to_contain_text("can be resumed later, in a fork")
        page.get_by_role("dialog").get_by_label("Reason").fill("it is late")
        dialog_button(page, "Cancel the call")
        state(call(page, "digest"), "canceled")
        expect(page.get_by_role("complementary")).to_contain_text("it is late")
        # The journal has the end of a call a moment before the runtime does.
        when(page, lambda: node.state is NodeState.Canceled)


def test_a_run_that_was_cancelled_goes_on_as_another(eyes: Eyes):
    with staged() as stage:
        node = stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        state(call(page, "publish"), "waits for you")
        stage.runtime.cancel(node.id)
        actions = page.get_by_role("group", name="Actions on this run")
        actions.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("link", name=f"fork of run {node.id}")).to_be_visible()
        state(call(page, "publish"), "waits for you")


def finished(stage: Stage, page: Page) -> None:
    node = stage.digest()
    when(page, stage.runtime.questions)
    stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
    node.result(60)


def test_an_agent_is_told_something_else_in_a_fork(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        finished(stage, page)
        open_run(page)
        detail = choose(page, "write_digest")
        detail.get_by_role("button", name="Fork… 1.5 write_digest").click()
        prompt = page.get_by_role("dialog").get_by_label("Prompt", exact=True)
        assert prompt.input_value().startswith("Please write digest this: ponds.txt is about")
        prompt.fill("Write it in rhyme.")
        eyes.picture(page, "fork")
        dialog_button(page, "Fork")
        expect(page.get_by_role("link", name="fork of run 1")).to_be_visible()
        state(call(page, "publish"), "waits for you")
        detail = choose(page, "write_digest")
        expect(detail.get_by_label("Transcript").locator("li.user")).to_have_text(
            "userWrite it in rhyme."
        )


def test_an_agent_goes_on_from_one_of_its_steps_in_a_fork(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        finished(stage, page)
        asked = len(stage.model.script.requests)
        open_run(page)
        detail = choose(page, "fact_check")
        detail.get_by_role("button", name="Fork before response 2").click()
        expect(page.get_by_role("dialog").get_by_label("Step", exact=True)).to_have_value("1")
        dialog_button(page, "Fork")
        expect(page.get_by_role("link", name="fork of run 1")).to_be_visible()
        state(call(page, "publish"), "waits for you")
    assert len(stage.model.script.requests) == asked + 2  # its second response, and the digest


def test_a_call_is_made_with_other_arguments_in_a_fork(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        finished(stage, page)
        open_run(page)
        detail = choose(page, "publish")
        detail.get_by_role("button", name="Fork… 1.6 publish").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Edit arguments").check()
        dialog.get_by_label("Arguments", exact=True).fill('{"text": "brief"}')
        dialog_button(page, "Fork")
        expect(page.get_by_role("link", name="fork of run 1")).to_be_visible()
        detail = choose(page, "publish")
        detail.get_by_role("button", name="publish", exact=True).click()
        expect(call(page, "publish")).to_contain_text("publish: 5 characters")


def test_what_the_server_refuses_is_said_as_a_sentence(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        finished(stage, page)
        open_run(page)
        detail = choose(page, "write_digest")
        detail.get_by_role("button", name="Fork… 1.5 write_digest").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Edit arguments").check()
        dialog.get_by_label("Arguments", exact=True).fill("[1, 2]")
        dialog_button(page, "Fork")
        expect(dialog.get_by_role("alert")).to_have_text("Args must be an object, got [1, 2].")
        eyes.picture(page)
        eyes.complaints.clear()  # the browser notes an answer of 400


def test_two_runs_are_laid_side_by_side(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        finished(stage, page)
        stage.runtime.invoke(newsroom.digest, {**newsroom.ARGS, "names": newsroom.NAMES[:2]})
        when(page, stage.runtime.questions)
        expect(page.get_by_role("gridcell", name="2", exact=True)).to_be_visible()
        open_run(page)
        expect(page.locator(".facts").first).to_contain_text("run 2 · ")
        page.get_by_role("button", name="Compare…").click()
        expect(page.get_by_role("dialog", name="Compare run 2 with")).to_be_visible()
        dialog_button(page, "Compare")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Run 1 beside run 2")
        expect(page.get_by_role("status").filter(has_text="differing call")).to_be_visible()
        rows = page.get_by_role("grid").get_by_role("row")
        expect(rows.filter(has_text="only in the first").first).to_be_visible()
        rows.filter(has_text="write_digest").first.click()
        expect(page.get_by_role("region", name="Run 1", exact=True)).to_contain_text("wheels")
        expect(page.get_by_role("region", name="Run 2", exact=True)).not_to_contain_text("wheels")
        eyes.picture(page, "difference")
        before = rows.count()
        page.get_by_label("Only what differs").check()
        expect(page.get_by_role("gridcell", name="=", exact=True)).to_have_count(0)
        assert rows.count() < before


def test_the_page_says_what_it_needs_without_a_token(eyes: Eyes):
    with staged() as stage:
        stage.digest()
        page = eyes.open(stage.viewer.address)
        expect(page.get_by_role("heading", name="This page needs its token")).to_be_visible()
        page.get_by_label("Token").fill(stage.viewer.token)
        page.get_by_role("button", name="Open").click()
        open_run(page)
        assert stage.viewer.token not in page.url
        eyes.complaints.clear()  # the browser notes answers of 401
