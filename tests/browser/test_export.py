"""A run as one file: the same page, from a disk, and nothing that could be asked for."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

import treefold
from browser.conftest import Eyes
from browser.served_journal import call, calls, choose, gone, staged, state, when
from browser.test_hostile_text import HOSTILE, agent, model
from support import wait
from treefold.cli import main
from treefold.views import data
from treefold.views.html import page as html_page


def written(path: Path, store: Any, id: int, ready: Callable[[treefold.Observer], object]) -> str:
    """Write the file of a run as soon as its journal is *ready*, and give its address.

    The runtime knows of a question or a result a moment before the journal has it.
    """
    journal = {"name": "run.db", "driven": False, "version": treefold.__version__}
    with treefold.attach(store) as observer:
        wait(lambda: ready(observer) or None)
        [row] = [tree for tree in observer.trees() if tree.id == id]
        held = data.run(observer.get_view(id), row, len(observer.questions()), journal)
        path.write_text(html_page(held), encoding="utf-8")
    return path.as_uri()


def asked(observer: treefold.Observer) -> object:
    return observer.questions()


def ended(id: int) -> Callable[[treefold.Observer], object]:
    return lambda observer: any(tree.id == id and tree.state.final for tree in observer.trees())


def test_a_file_of_a_fork_marks_its_shared_calls(eyes: Eyes, tmp_path: Path):
    store = treefold.SqliteStore(tmp_path / "run.db")
    with staged(store=store) as stage:
        page = eyes.open(stage.url)
        node = stage.digest(key="nightly")
        when(page, stage.runtime.questions)
        fork = stage.runtime.fork(stage.runtime.get_view(node.id).children[-1].id)
        when(page, lambda: len(stage.runtime.questions()) == 2)
        target = str(tmp_path / "fork.html")
        assert main(["export", fork.path, "--html", target, "--store", store.name]) == 0
    page = eyes.open(Path(target).as_uri())
    expect(calls(page).get_by_role("img", name="shared with run 1")).to_have_count(10)
    expect(calls(page).get_by_role("link")).to_have_count(0)


def test_a_run_is_read_from_a_file(eyes: Eyes, tmp_path: Path):
    with staged() as stage:
        node = stage.digest(key="nightly")
        url = written(tmp_path / "run.html", stage.runtime.store, node.id, asked)
    page = eyes.open(url)
    expect(page.get_by_text("saved run")).to_be_visible()
    state(call(page, "publish"), "waits for you")
    assert calls(page).count() == 12
    time = call(page, "digest").get_by_role("gridcell").last.inner_text()
    eyes.picture(page, "export")
    detail = choose(page, "1.4")
    expect(detail.get_by_label("Transcript")).to_contain_text("One fact holds.")
    detail.get_by_role("link", name="Go to the call 1.4.1").first.click()
    expect(detail.get_by_role("heading", level=2)).to_contain_text("look_up")
    detail.get_by_text("Call stack").click()
    expect(detail.locator(".stack li")).to_have_count(3)
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".bar").first).to_be_visible()
    page.get_by_role("tab", name="Flame graph").click()
    for by in ("Tokens", "Money", "Time"):
        page.get_by_role("button", name=by, exact=True).click()
        expect(page.locator(".frame").filter(has_text="digest").first).to_be_visible()
    page.get_by_role("tab", name="Tree").click()
    page.keyboard.press("/")
    page.keyboard.type("fifty minutes")
    expect(call(page, "write_digest")).to_be_visible()
    expect(calls(page).filter(has_text="look_up")).to_have_count(0)
    page.keyboard.press("Escape")
    assert call(page, "digest").get_by_role("gridcell").last.inner_text() == time  # it stands still


def test_a_question_that_is_answered_does_not_wait_in_a_file(eyes: Eyes, tmp_path: Path):
    journal, target = tmp_path / "run.db", tmp_path / "run.html"
    with staged(store=treefold.SqliteStore(journal)) as stage:
        stage.digest()
        when(eyes.open("about:blank"), stage.runtime.questions)
    with treefold.attach(journal) as observer:
        [question] = observer.questions()
        observer.answer(question.id, "publish")
    assert main(["export", "--html", str(target), "--store", str(journal)]) == 0
    page = eyes.open(target.as_uri())
    expect(call(page, "publish")).to_contain_text("answered; it resumes when its program runs")
    gone(page.get_by_text("waits for you"))
    gone(page.get_by_role("button", name="question for you"))
    detail = choose(page, "publish")
    expect(detail).to_contain_text("Answered; it resumes when its program runs.")
    expect(detail.get_by_role("article")).to_have_count(0)


def buttons(page: Page) -> list[str]:
    return [text.strip() for text in page.get_by_role("button").all_inner_texts()]


def test_a_file_offers_no_actions(eyes: Eyes, tmp_path: Path):
    with staged() as stage:
        node = stage.digest()
        url = written(tmp_path / "run.html", stage.runtime.store, node.id, asked)
    page = eyes.open(url)
    detail = choose(page, "publish")
    expect(detail.get_by_text("Publish the digest on the front page?")).to_be_visible()
    offered = " ".join(buttons(page))
    for word in ("Pause", "Cancel", "Fork", "Resume", "Compare", "Answer", "hold it back"):
        assert word not in offered
    assert detail.get_by_role("textbox").count() == 0


def test_hostile_text_in_a_file_stays_text(eyes: Eyes, tmp_path: Path):
    with staged(agent, script=model()) as stage:
        node = stage.runtime.invoke(agent, {"text": HOSTILE}, key=HOSTILE.replace("\x00", ""))
        url = written(tmp_path / "run.html", stage.runtime.store, node.id, ended(node.id))
    page = eyes.open(url)
    state(call(page, "agent"), "success")
    for path in ("1", "1.1", "1.2"):
        choose(page, path)
    assert page.evaluate("() => window.owned") is None
    assert page.locator("body :is(img, iframe, a[href^='javascript'], style)").count() == 0
    assert page.locator("script").count() == 2  # the data, and the page's own


def test_the_file_lets_one_script_run_and_loads_nothing():
    text = html_page({"journal": {}, "trees": [], "rows": [], "details": {}, "flame": {}}, at=0)
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/]+='", rules["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/]+='", rules["style-src"])
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', text.partition("treefold-data")[0]) == []


def test_data_is_read_back_as_it_was_given():
    given = {
        "journal": {"name": "</script><!--\u2028\u2029"},
        "trees": [],
        "rows": [],
        "details": {},
        "flame": {},
    }
    text = html_page(given, at=12.5)
    [held] = re.findall(r'id="treefold-data">(.*?)</script>', text)
    assert json.loads(held) == {**given, "at": 12.5}
