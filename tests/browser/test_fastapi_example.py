"""``examples/fastapi_app.py`` in a browser, with a model that plays its part."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from playwright.sync_api import expect

import fastapi_app
from agent_scripts import told
from browser.conftest import Eyes
from treefold import Runtime, ToolUse
from treefold.testing import ScriptedModel, ScriptedRequest
from treefold.testing.scripted import Reply


def plays(request: ScriptedRequest) -> Reply:
    results = told(request)
    if not results:
        return ToolUse("call_1", "human_in_loop", {"question": "What do you like to eat?"})
    return f"Begin with the market, for {results[0].content}."


@contextmanager
def served(runtime: Runtime) -> Generator[str]:
    """Serve the example on a free port of this machine, in a thread."""
    fastapi_app.app.state.runtime = runtime
    config = uvicorn.Config(
        fastapi_app.app, port=0, log_level="warning", timeout_graceful_shutdown=1
    )
    server, started = uvicorn.Server(config), threading.Event()

    async def serve() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 - it says so in no other way
                await asyncio.sleep(0.01)
            started.set()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    assert started.wait(60)
    [socket] = server.servers[0].sockets
    yield f"http://127.0.0.1:{socket.getsockname()[1]}/"
    server.should_exit = True
    thread.join(60)


def test_a_run_is_streamed_to_the_page_and_answered_from_it(eyes: Eyes, tmp_path: Path):
    model, store = ScriptedModel(plays, plays), tmp_path / "plans.db"
    with (
        Runtime([fastapi_app.plan_day], models=model, store=store) as runtime,
        served(runtime) as url,
    ):
        # The second visitor asks for the same run, and the first one answers.
        pages = [eyes.open(url), eyes.open(url)]
        for page in pages:
            page.get_by_label("City").fill("Ulm")
            page.get_by_role("button", name="Plan a day").click()
            page.get_by_text("What do you like to eat?").wait_for()
        eyes.picture(pages[0])
        pages[0].get_by_label("Answer").fill("dumplings")
        pages[0].get_by_role("button", name="Answer").click()
        for page in pages:
            expect(page.locator("#plan")).to_have_text("Begin with the market, for dumplings.")
            expect(page.locator("#state")).to_have_text("plan_day: success")
            expect(page.locator("#question")).to_be_hidden()
        [node] = runtime.list_toplevel()
        numbers = [event.number for event in runtime.events(node)]
        again = httpx.get(f"{url}plan?city=Ulm", headers={"Last-Event-ID": "7"}, timeout=60).text
        sent = [line.removeprefix("id: ") for line in again.splitlines() if line.startswith("id")]
        assert sent == [str(number) for number in numbers if number > 7]


@pytest.mark.parametrize("city", ["Halle/Saale", "..", "a?b=c&d#e", "100 %"])
def test_any_city_can_be_planned(eyes: Eyes, tmp_path: Path, city: str):
    with (
        Runtime(
            [fastapi_app.plan_day], models=ScriptedModel("Stay in."), store=tmp_path / "a.db"
        ) as runtime,
        served(runtime) as url,
    ):
        page = eyes.open(url)
        page.get_by_label("City").fill(city)
        page.get_by_role("button", name="Plan a day").click()
        expect(page.locator("#plan")).to_have_text("Stay in.")
        [node] = runtime.list_toplevel()
        assert node.inputs == {"city": city}


def test_the_page_says_that_a_question_was_answered_before(eyes: Eyes, tmp_path: Path):
    model, store = ScriptedModel(plays, plays), tmp_path / "plans.db"
    with (
        Runtime([fastapi_app.plan_day], models=model, store=store) as runtime,
        served(runtime) as url,
    ):
        page = eyes.open(url)
        page.get_by_label("City").fill("Ulm")
        page.get_by_role("button", name="Plan a day").click()
        page.get_by_text("What do you like to eat?").wait_for()
        [question] = runtime.questions()
        answer = {"question": question.id, "text": "dumplings"}
        assert httpx.post(f"{url}answer", params=answer, timeout=60).status_code == 200
        expect(page.locator("#state")).to_have_text("plan_day: success")

        again = httpx.post(f"{url}answer", params=answer, timeout=60)
        page.evaluate("document.getElementById('question').requestSubmit()")

        assert (again.status_code, question.id in again.text) == (409, True)
        expect(page.locator("#state")).to_have_text(again.text)
        [complaint] = eyes.complaints
        assert "409" in complaint
        eyes.complaints.clear()


def test_the_page_says_that_the_server_refused_a_city(eyes: Eyes, tmp_path: Path):
    with (
        Runtime([fastapi_app.plan_day], models=ScriptedModel(), store=tmp_path / "a.db") as runtime,
        served(runtime) as url,
    ):
        page = eyes.open(url)
        page.evaluate("start.noValidate = true; start.requestSubmit()")  # without a city
        expect(page.locator("#state")).to_have_text("The server refused this city.")
        [complaint] = eyes.complaints
        assert "422" in complaint
        eyes.complaints.clear()


def test_it_has_about_forty_lines():
    assert len(Path(fastapi_app.__file__).read_text().splitlines()) <= 42
