"""The viewer's API, over real HTTP, on a run that is live in another process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import survey_journals
from command_results import treefold
from support import wait
from survey_journals import Driver, driving
from viewer_process import Viewer, viewing


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("viewer")) as driver:
        driver.survey("first", key="nightly")
        yield driver


@pytest.fixture(scope="module")
def viewer(driver: Driver) -> Iterator[Viewer]:
    with viewing(driver.file) as viewer:
        yield viewer


def rows(driver: Driver, id: object) -> list[dict[str, Any]]:
    return treefold("tree", f"node:{id}", "--json", "--store", driver.file).json


# --- reading


def test_the_journal_is_named_and_driven(viewer: Viewer):
    found = viewer.get("/api/journal")
    assert set(found) >= {"name", "driven", "version"}
    assert (found["name"], found["driven"]) == ("run.db", True)


def test_the_trees_are_those_of_ps(viewer: Viewer, driver: Driver):
    listed = treefold("ps", "--json", "--store", driver.file).json
    assert viewer.get("/api/trees")["trees"] == listed


def test_a_node_has_its_detail(viewer: Viewer, driver: Driver):
    judged = rows(driver, 1)[3]
    detail = viewer.get(f"/api/nodes/{judged['id']}")
    more = {"questions", "notices"}  # which say more in a detail
    own = {name: judged[name] for name in judged.keys() - more - {"seq"}}
    assert {name: detail[name] for name in own} == own
    assert (detail["inputs"], detail["outputs"]) == ({"text": "moss"}, "Quite short.")
    assert (detail["exception"], detail["partial"], detail["questions"]) == (None, "", [])
    assert detail["usage"]["total"] == 240
    assert set(detail["usage"]) == {
        "cache_read", "cache_write", "input", "reasoning", "output", "total"
    }  # fmt: skip
    kinds = [part["kind"] for part in detail["transcript"]]
    assert kinds == ["system", "user", "thinking", "call", "result", "text"]


def test_a_part_can_be_had_whole(viewer: Viewer, driver: Driver):
    judged = rows(driver, 1)[3]["id"]
    assert viewer.get(f"/api/nodes/{judged}/parts/5") == {"text": "Quite short."}


def test_the_stack_of_a_node(viewer: Viewer):
    frames = viewer.get("/api/nodes/1/stack")["frames"]
    assert [frame["fn"] for frame in frames] == ["survey", "gate"]


@pytest.mark.parametrize("by", ["time", "tokens", "money"])
def test_the_flame_of_a_tree(viewer: Viewer, by: str):
    flame = viewer.get("/api/trees/1/flame", params={"by": by})
    assert (flame["by"], flame["frames"][0]["fn"]) == (by, "survey")


def test_the_difference_of_two_trees(viewer: Viewer, driver: Driver):
    assert viewer.get("/api/difference", params={"a": 1, "b": 1})["same"] is True


@pytest.mark.parametrize("text", ["quite SHORT", "judge", "fern", "had better look"])
def test_a_search_finds_names_inputs_outputs_and_transcripts(viewer: Viewer, text: str):
    found = viewer.get("/api/search", params={"tree": 1, "q": text})["nodes"]
    assert found
    assert all(isinstance(id, int) for id in found)


def test_a_search_that_finds_nothing(viewer: Viewer):
    assert viewer.get("/api/search", params={"tree": 1, "q": "granite"}) == {"nodes": []}


# --- acting


def test_a_question_is_answered(viewer: Viewer, driver: Driver):
    id, first = driver.asking("choose")
    [question] = [q for q in viewer.get("/api/questions")["questions"] if q["id"] == first]
    assert (question["kind"], question["choices"]) == ("human", ["red", "blue"])
    assert (question["tree"], question["fn"]) == (id, "choose")
    assert viewer.post(f"/api/questions/{first}", {"text": "red", "args": None}).status_code == 200

    def second() -> list[str]:
        found = viewer.get("/api/questions")["questions"]
        return [q["id"] for q in found if q["tree"] == id and q["id"] != first]

    [other] = wait(second)
    assert viewer.post(f"/api/questions/{other}", {"text": "so", "args": None}).status_code == 200
    assert driver.result(id) == "red so"


def test_an_approval_may_change_the_arguments(viewer: Viewer, driver: Driver):
    id, question = driver.asking("tidy", folder="attic")
    answer = viewer.post(f"/api/questions/{question}", {"text": "allow", "args": {"path": "new"}})
    assert answer.status_code == 200, answer.text
    driver.result(id)
    assert rows(driver, id)[-1]["result"] == "deleted new"


def test_a_run_is_paused_and_resumed(viewer: Viewer, driver: Driver):
    id = driver.survey("paused")
    assert viewer.post(f"/api/nodes/{id}/pause", {"reason": "lunch"}).status_code == 200
    driver.tell(do="asked", id=id)
    assert viewer.post(f"/api/nodes/{id}/resume", {}).status_code == 200
    driver.open("paused")
    assert driver.result(id) == "Quite short."


def test_a_run_is_cancelled_with_a_reason(viewer: Viewer, driver: Driver):
    id = driver.survey("cancelled")
    assert viewer.post(f"/api/nodes/{id}/cancel", {"reason": "too dear"}).status_code == 200
    assert "too dear" in driver.result(id)


def test_an_agent_is_forked_with_edited_prompts(viewer: Viewer, driver: Driver):
    id = driver.survey("forked")
    driver.open("forked")
    driver.result(id)
    judged = rows(driver, id)[3]["id"]
    answer = viewer.post(
        f"/api/nodes/{judged}/fork",
        {"at": None, "prompt": "Longer?", "system": "Be strict.", "model": None, "args": None},
    )
    assert answer.status_code == 200, answer.text
    key = quote(answer.json()["key"], safe="")
    node = wait(lambda: viewer.get(f"/api/forks/{key}")["node"])
    assert driver.result(node) == "Quite short."
    said = viewer.get(f"/api/nodes/{rows(driver, node)[3]['id']}")["transcript"]
    assert [part["text"] for part in said[:2]] == ["Be strict.", "Longer?"]
    [tree] = [tree for tree in viewer.get("/api/trees")["trees"] if tree["id"] == node]
    assert tree["source"] is not None


# --- what cannot be done


def refused(answer: Any, status: int) -> None:
    assert answer.status_code == status, (answer.status_code, answer.text)
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"].strip()
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/api/nodes/4711", "/api/nodes/4711/stack", "/api/trees/4711/flame", "/api/nothing",
        "/api/nodes/1/parts/99", f"/api/nodes/{10**30}", "/api/stream?tree=4711",
    ],
)  # fmt: skip
def test_what_is_not_there_is_404(viewer: Viewer, path: str):
    refused(viewer.client.get(path), 404)


@pytest.mark.parametrize(
    "path",
    [
        "/api/trees/1/flame?by=weight", "/api/difference?a=1", "/api/difference?a=1&b=x",
        "/api/search?tree=x&q=a", "/api/stream?tree=x", "/api/stream?tree=1&seq=x",
    ],
)  # fmt: skip
def test_bad_input_is_400(viewer: Viewer, path: str):
    refused(viewer.client.get(path), 400)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"text"', b'{"text": 3}', b"\xff\xfe", b"[" * 100_000]
)
def test_a_body_that_is_no_answer_is_400(viewer: Viewer, driver: Driver, body: bytes):
    id, question = driver.asking("choose")
    answer = viewer.client.post(
        f"/api/questions/{question}", content=body, headers={"Content-Type": "application/json"}
    )
    refused(answer, 400)
    assert driver.tell(do="asked", id=id) == question


def test_an_answer_that_is_none_of_the_choices_is_400(viewer: Viewer, driver: Driver):
    _, question = driver.asking("choose")
    refused(viewer.post(f"/api/questions/{question}", {"text": "green", "args": None}), 400)


def test_a_fork_after_a_response_that_never_was_is_400(viewer: Viewer, driver: Driver):
    refused(viewer.post(f"/api/nodes/{rows(driver, 1)[3]['id']}/fork", {"at": 99}), 400)


def test_an_answer_to_no_question_is_404(viewer: Viewer):
    refused(viewer.post("/api/questions/99-9", {"text": "red", "args": None}), 404)


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_what_has_ended_is_409(viewer: Viewer, driver: Driver, action: str):
    id = driver.survey(f"over, {action}")
    driver.open(f"over, {action}")
    driver.result(id)
    refused(viewer.post(f"/api/nodes/{id}/{action}", {"reason": "late"}), 409)


def test_an_error_is_a_sentence_that_says_what_to_do(viewer: Viewer):
    assert len(viewer.client.get("/api/nothing").json()["error"].split()) > 3


def test_a_journal_that_nobody_drives_says_so_and_keeps_what_is_asked(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    with viewing(journal.file) as viewer:
        assert viewer.get("/api/journal")["driven"] is False
        answer = viewer.post("/api/questions/1-1", {"text": "red", "args": None})
        assert answer.status_code == 200
        refused(viewer.post("/api/questions/1-1", {"text": "red", "args": None}), 409)
    with driving(tmp_path) as driver:
        wait(lambda: driver.tell(do="asked", id=1) != "1-1")
