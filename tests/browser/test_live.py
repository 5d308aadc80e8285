"""A run in progress is updated on the page."""

import asyncio
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Locator, Route, expect

import warm_python
from browser.conftest import Eyes
from browser.served_journal import call, calls, choose, gone, open_run, staged, state, when
from support import wait
from treefold import CodeFunction, NodeState, RunContext, Runtime, SqliteStore, attach
from treefold.views.web import view

PROGRAM = """
import sys
from browser import newsroom
from treefold import Runtime
with Runtime([newsroom.digest], models=newsroom.model(), store=sys.argv[1]) as runtime:
    print(runtime.invoke(newsroom.digest, newsroom.ARGS, key="nightly").result(60))
"""


def test_a_run_appears_and_comes_to_its_end_without_a_reload(eyes: Eyes):
    with staged(pace=0.01) as stage:
        page = eyes.open(stage.url)
        expect(page.get_by_text("No runs yet.")).to_be_visible()
        stage.model.gate.clear()
        node = stage.digest(key="nightly")
        open_run(page, "nightly")
        state(call(page, "1.1"), "running")
        eyes.picture(page, "live_running")
        stage.model.gate.set()
        expect(page.get_by_role("button", name="1 question for you")).to_be_visible()
        state(call(page, "publish"), "waits for you")
        stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
        state(call(page, "digest"), "success")
        expect(call(page, "digest")).to_contain_text(node.result(60))
        assert calls(page).count() == 12


def test_what_a_model_says_is_seen_while_it_says_it(eyes: Eyes):
    with staged(pace=0.001) as stage:
        stage.model.stops_at = "creek,"  # a word in the middle of its first summary
        page = eyes.open(stage.url)
        stage.digest()
        open_run(page)
        detail = choose(page, "1.1")
        live = detail.locator("[aria-busy=true]")
        expect(live).to_contain_text("a dam across a creek,")
        said = live.locator("pre").inner_text()
        expect(call(page, "1.1").get_by_role("gridcell").first).to_contain_text(said[-12:].strip())
        eyes.picture(page, "live_text")
        stage.model.stops_at = ""
        stage.model.gate.set()
        expect(live).to_have_count(0)
        expect(detail.get_by_label("Transcript").locator("li").last).to_contain_text(said[:60])


def test_time_passes_on_the_screen(eyes: Eyes):
    with staged() as stage:
        stage.model.gate.clear()
        stage.digest()
        page = eyes.open(stage.url)
        open_run(page)
        cell = call(page, "digest").get_by_role("gridcell").last
        first = cell.inner_text()
        expect(cell).not_to_have_text(first)
        stage.model.gate.set()


async def _wait(ctx: RunContext) -> None:
    await asyncio.Event().wait()


def test_a_run_whose_process_has_ended_is_interrupted_until_it_is_driven_again(
    eyes: Eyes, tmp_path: Path
):
    waiting, path = CodeFunction(callable=_wait, name="wait"), tmp_path / "dead.db"
    with Runtime([waiting], store=tmp_path / "run.db") as runtime:
        node = runtime.invoke(waiting)
        with attach(tmp_path / "run.db") as observer:
            wait(lambda: [one for one in observer.trees() if one.state is NodeState.Running])
        with (
            closing(sqlite3.connect(tmp_path / "run.db")) as source,
            closing(sqlite3.connect(path)) as copy,
        ):
            source.backup(copy)  # what a killed process leaves behind
        node.cancel()
    with view(path, port=0) as viewer:
        page = eyes.open(viewer.url)
        open_run(page)
        state(call(page, "wait"), "interrupted")
        expect(page.locator(".state-name")).to_have_text("interrupted")
        eyes.picture(page, "interrupted")
        store = SqliteStore(path)
        store.join()
        state(call(page, "wait"), "running")
        store.close()
        state(call(page, "wait"), "interrupted")


def test_a_run_of_another_process_is_followed(eyes: Eyes, tmp_path: Path):
    path = tmp_path / "run.db"
    SqliteStore(path).close()
    with view(path, port=0) as viewer:
        page = eyes.open(viewer.url)
        expect(page.get_by_text("No runs yet.")).to_be_visible()
        tests = str(Path(__file__).parents[1])
        program = subprocess.Popen(
            warm_python.command("-c", PROGRAM, str(path)),
            env={"PYTHONPATH": tests},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            open_run(page, "nightly")
            detail = choose(page, "publish")
            detail.get_by_role("button", name="publish", exact=True).click()
            state(call(page, "digest"), "success")
            when(page, lambda: program.poll() is not None)
            printed, _ = program.communicate(timeout=60)
        finally:
            program.kill()
            program.wait()
    assert (program.returncode, printed) == (0, "publish: 306 characters\n")


def spins(row: Locator) -> bool:
    """Whether the sign of a call's state turns."""
    sign = row.locator(".state").first
    return sign.evaluate("sign => sign.getAnimations().length > 0")


def test_the_page_says_that_no_program_drives_the_journal(eyes: Eyes, tmp_path: Path):
    path = tmp_path / "run.db"
    with staged(store=SqliteStore(path)) as stage:
        page = eyes.open(stage.url, reduced_motion="no-preference")
        stage.digest()
        expect(page.get_by_role("button", name="1 question for you")).to_be_visible()
        gone(page.get_by_text("The program of this journal is stopped"))
        expect(page.locator(".connection")).to_have_text("program running")
        open_run(page)
        assert spins(call(page, "digest"))
    with view(path, port=0) as viewer:
        page = eyes.open(viewer.url)
        expect(page.get_by_text("The program of this journal is stopped")).to_be_visible()
        expect(page.locator(".connection")).to_have_text("program stopped")
        open_run(page)
        state(call(page, "digest"), "interrupted")
        assert not spins(call(page, "digest"))
        detail = choose(page, "publish")
        detail.get_by_role("button", name="publish", exact=True).click()
        expect(page.get_by_text("Answered. The program is stopped")).to_be_visible()
        gone(page.get_by_role("button", name="question for you"))
        gone(page.get_by_text("waits for you"))
        expect(call(page, "publish")).to_contain_text("answered; it resumes when its program runs")
        expect(detail).to_contain_text("Answered; it resumes when its program runs.")
        expect(detail.get_by_role("article")).to_have_count(0)


def test_a_run_that_is_not_there_is_said_to_be_missing(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        page.goto(f"{stage.viewer.address}/#/run/999")
        expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()
        eyes.picture(page, "no_such_run")
        stage.digest(key="nightly")
        page.get_by_role("link", name="All runs", exact=True).click()
        open_run(page, "nightly")
        eyes.complaints.clear()  # the browser notes an answer of 404


def test_a_run_that_was_missing_is_shown_when_it_appears(eyes: Eyes):
    with staged() as stage:
        page = eyes.open(stage.url)
        page.goto(f"{stage.viewer.address}/#/run/1")
        expect(page.get_by_role("heading", name="There is no such run")).to_be_visible()
        expect(page.locator(".connection")).to_have_text("program running")
        assert stage.digest().id == 1
        state(call(page, "publish"), "waits for you")
        eyes.complaints.clear()  # the browser notes an answer of 404


def test_a_run_that_is_listed_and_not_found_is_tried_again_and_not_too_often(eyes: Eyes):
    tries: list[float] = []

    def refuse_three(route: Route) -> None:
        tries.append(time.monotonic())
        if len(tries) > 3:
            route.continue_()
        else:
            route.fulfill(status=404, json={"error": "it is not there yet"})

    with staged() as stage:
        node = stage.digest()
        page = eyes.open(stage.url)
        page.route(f"**/api/stream?tree={node.id}&*", refuse_three)
        page.goto(f"{stage.viewer.address}/#/run/{node.path}")
        state(call(page, "publish"), "waits for you")
        _, second, third, fourth = tries
        assert third - second >= 0.2
        assert fourth - third >= 0.4
        eyes.complaints.clear()  # the browser notes each answer of 404


def test_a_flame_graph_grows_with_its_run(eyes: Eyes):
    with staged(pace=0.002) as stage:
        stage.model.gate.clear()
        node = stage.digest()
        page = eyes.open(stage.url)
        page.goto(f"{stage.viewer.address}/#/run/{node.path}/flame")
        expect(page.locator(".frame").filter(has_text="summarise").first).to_be_visible()
        expect(page.locator(".frame").filter(has_text="publish")).to_have_count(0)
        stage.model.gate.set()
        expect(page.locator(".frame").filter(has_text="publish")).to_be_visible()
        when(page, stage.runtime.questions)  # it is seen before it asks
        stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
        expect(page.locator(".frame[data-state=success]").filter(has_text="digest")).to_be_visible()


DISAGREEMENTS = """detail => {
    window.seen = [];
    new MutationObserver(() => {
        const facts = detail.querySelector(".facts");
        const all = detail.querySelector("table.usage tr.total td:last-child");
        const spent = facts?.textContent.match(/([0-9][^ ·]*) tokens/);
        if (all && spent) window.seen.push([spent[1], all.textContent]);
    }).observe(detail, { subtree: true, childList: true, characterData: true });
}"""


def test_the_usage_of_a_call_agrees_with_its_header_at_any_moment(eyes: Eyes):
    with staged(pace=0.005) as stage:
        stage.model.gate.clear()
        page = eyes.open(stage.url)
        node = stage.digest()
        open_run(page)
        detail = choose(page, "digest")
        detail.evaluate(DISAGREEMENTS)
        stage.model.gate.set()
        expect(page.get_by_role("button", name="1 question for you")).to_be_visible()
        stage.runtime.answer(stage.runtime.questions()[0].id, "publish")
        state(call(page, "digest"), "success")
        total = f"{stage.runtime.get_view(node.id).total_usage.total:,}"
        expect(detail.locator("table.usage tr.total td").last).to_have_text(total)
        seen = page.evaluate("window.seen")
    assert seen
    assert [pair for pair in seen if pair[0] != pair[1]] == []
