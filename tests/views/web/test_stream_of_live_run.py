"""The viewer's stream drops and resumes, and nothing is lost or sent twice."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import warm_python
from command_results import PATIENCE, environment, treefold
from support import wait
from survey_journals import SURVEY, Driver, driving, has_begun
from viewer_process import Message, Viewer, viewing
from wire import ModelServer, Wait
from wire.openai_wire import text as wire_text
from wire.protocols import PROTOCOLS


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("stream")) as driver:
        driver.survey("first")
        yield driver


@pytest.fixture(scope="module")
def viewer(driver: Driver) -> Iterator[Viewer]:
    with viewing(driver.file) as viewer:
        yield viewer


def next_of(stream: Iterator[Message], event: str) -> Message:
    return next(message for message in stream if message.event == event)


class Screen:
    """What a page knows: the newest row of each node, and how far it has come."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.seq = 0
        self.told: list[tuple[int, int]] = []

    def take(self, message: Message) -> None:
        assert message.event == "rows"
        assert message.id == str(message.data["seq"])
        assert message.data["seq"] > self.seq, "a message that brings nothing new"
        for row in message.data["rows"]:
            assert self.seq < row["seq"] <= message.data["seq"], "a row that was told before"
            assert row["parent"] is None or row["parent"] in self.rows, "a child without a parent"
            self.rows[row["id"]] = row
            self.told.append((row["id"], row["seq"]))
        self.seq = message.data["seq"]

    @property
    def over(self) -> bool:
        return bool(self.rows) and next(iter(self.rows.values()))["state"] == "success"


def tree(driver: Driver, id: int) -> list[dict[str, Any]]:
    return unnumbered(treefold("tree", f"node:{id}", "--json", "--store", driver.file).json)


def unnumbered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *rows* without the numbers, which each who looks on counts alone; oldest first."""
    known = [{name: row[name] for name in row if name != "seq"} for row in rows]
    return sorted(known, key=lambda row: row["id"])


def test_the_first_message_has_all_rows_parents_first(viewer: Viewer, driver: Driver):
    screen = Screen()
    with viewer.stream(1) as stream:
        message = next_of(stream, "rows")
        screen.take(message)
    assert message.data["tree"] == 1
    assert unnumbered(screen.rows.values()) == tree(driver, 1)


def test_a_live_run_updates_without_asking_again(viewer: Viewer, driver: Driver):
    id = driver.survey("live")
    screen = Screen()
    with viewer.stream(id) as stream:
        screen.take(next_of(stream, "rows"))
        assert not screen.over
        driver.open("live")
        while not screen.over:
            screen.take(next_of(stream, "rows"))
    assert unnumbered(screen.rows.values()) == tree(driver, id)


def resumed(viewer: Viewer, driver: Driver, hold: str, others: int = 0) -> list[str]:
    """Drop a stream, let the run end, and return the functions whose rows come afterwards.

    In between, so many *others* are looked at.
    """
    id = driver.survey(hold)
    screen = Screen()
    with viewer.stream(id) as stream:
        screen.take(next_of(stream, "rows"))
    for other in [driver.call("forest", branches=1, width=1) for _ in range(others)]:
        viewer.get(f"/api/nodes/{other}")
    driver.open(hold)
    driver.result(id)
    told: list[str] = []
    while not screen.over:
        with viewer.stream(id, screen.seq) as stream:
            message = next_of(stream, "rows")
            screen.take(message)
            told += [row["fn"] for row in message.data["rows"]]
    assert unnumbered(screen.rows.values()) == tree(driver, id)
    return sorted(set(told))


def test_a_stream_that_drops_resumes_with_no_gap_and_no_duplicate(viewer: Viewer, driver: Driver):
    assert resumed(viewer, driver, "dropped") == ["gate", "survey"]


def test_a_stream_resumes_as_well_after_many_other_runs_were_looked_at(
    viewer: Viewer, driver: Driver
):
    assert resumed(viewer, driver, "forgotten", others=32) == ["gate", "survey"]


def test_a_stream_that_drops_after_every_message_loses_nothing(viewer: Viewer, driver: Driver):
    id = driver.call("forest", branches=10, width=10)
    screen = Screen()
    while not screen.over:
        with viewer.stream(id, screen.seq) as stream:
            screen.take(next_of(stream, "rows"))
    assert len(screen.rows) == 111
    assert len(set(screen.told)) == len(screen.told)
    assert unnumbered(screen.rows.values()) == tree(driver, id)


def test_two_who_listen_see_the_same(viewer: Viewer, driver: Driver):
    id = driver.survey("two")
    one, other = Screen(), Screen()
    with viewer.stream(id) as first, viewer.stream(id) as second:
        one.take(next_of(first, "rows"))
        other.take(next_of(second, "rows"))
        driver.open("two")
        while not one.over:
            one.take(next_of(first, "rows"))
        while not other.over:
            other.take(next_of(second, "rows"))
    assert one.rows == other.rows


def test_who_reads_slowly_gets_fewer_and_larger_messages(viewer: Viewer, driver: Driver):
    screen = Screen()
    id = driver.survey("slow")  # so that there is a tree to listen to
    with viewer.stream(id) as stream:
        screen.take(next_of(stream, "rows"))
        many = driver.call("forest", branches=20, width=20)
        driver.result(many)
        driver.open("slow")
        driver.result(id)
        taken = 0
        while not screen.over:
            screen.take(next_of(stream, "rows"))
            taken += 1
    assert taken <= 5
    with viewer.stream(many) as stream:
        whole = Screen()
        whole.take(next_of(stream, "rows"))
    assert len(whole.rows) == 421


def test_a_new_run_is_told_to_all(viewer: Viewer, driver: Driver):
    with viewer.stream() as stream:
        known = {tree["id"] for tree in next_of(stream, "trees").data["trees"]}
        id = driver.survey("new")
        while True:
            message = next_of(stream, "trees")
            assert message.data["driven"] is True
            if id in {tree["id"] for tree in message.data["trees"]} - known:
                return


def test_a_question_is_told_and_so_is_that_it_is_gone(viewer: Viewer, driver: Driver):
    with viewer.stream() as stream:
        _, question = driver.asking("choose")

        def told() -> list[str]:
            return [q["id"] for q in next_of(stream, "questions").data["questions"]]

        while question not in told():
            pass
        sent = viewer.post(f"/api/questions/{question}", {"text": "red", "args": None})
        assert sent.is_success, sent.text
        while question in told():
            pass


def test_without_a_tree_no_rows_are_told(viewer: Viewer, driver: Driver):
    with viewer.stream() as stream:
        next_of(stream, "trees")
        driver.survey("unseen")
        driver.open("unseen")
        assert next(stream).event in {"trees", "questions"}


async def test_live_text_of_another_process_comes_as_it_is_said(tmp_path: Path):
    more, end = asyncio.Event(), asyncio.Event()
    reply = wire_text("Once ", "upon ", Wait(more), "a ", "time", Wait(end), ".")
    [openai] = [one for one in PROTOCOLS if str(one) == "openai"]
    async with openai.server(reply) as server:
        await _story(tmp_path, server, more, end)


async def _story(
    folder: Path, server: ModelServer, more: asyncio.Event, end: asyncio.Event
) -> None:
    store = folder / "run.db"
    process = await asyncio.create_subprocess_exec(
        *warm_python.command("-m", "treefold", "run", f"{SURVEY}:tell", "--arg", "about=moss"),
        "--store", str(store), "--model", f"openai:story@{server.url}/v1",
        env=environment(OPENAI_API_KEY="none"), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.to_thread(wait, lambda: has_begun(store))
            loop = asyncio.get_running_loop()
            told = await asyncio.to_thread(
                _listen, store, lambda: loop.call_soon_threadsafe(more.set)
            )
            assert told == "Once upon a time"
            end.set()
            out, err = await process.communicate()
        assert (process.returncode, out.decode()) == (0, "Once upon a time.\n"), err
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _listen(store: Path, more: Any) -> str:
    """Return the text as a page would have it, once it is as long as it gets."""
    said = ""
    with viewing(store) as viewer, viewer.stream(1) as stream:
        for message in stream:
            if message.event == "text":
                said = said[: message.data["from"]] + message.data["text"]
                assert message.id is None
                if said.startswith("Once upon"):
                    more()
                if said == "Once upon a time":
                    return said
    return said
