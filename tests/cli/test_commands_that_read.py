"""The commands that read a journal: live in another process, and long finished."""

from pathlib import Path
from typing import Any

import pytest

import survey_journals
from command_results import treefold
from survey_journals import Journal

PARTS = ["system", "user", "thinking", "call", "result", "text"]


def read(journal: Journal, *args: object) -> str:
    done = treefold(*args, "--store", journal.file)
    assert (done.code, done.err) == (0, ""), done
    return done.out


def data(journal: Journal, *args: object) -> Any:
    done = treefold(*args, "--json", "--store", journal.file)
    assert (done.code, done.err) == (0, ""), done
    return done.json


def state_of(journal: Journal) -> str:
    return "running" if journal.live else "success"


# --- ps


def test_ps_lists_the_runs_with_their_state(survey: Journal):
    out = read(survey, "ps")
    for word in (str(survey.id), "nightly", "survey", state_of(survey)):
        assert word in out


def test_ps_as_json_has_the_documented_fields(survey: Journal):
    [tree] = data(survey, "ps")
    assert set(tree) == {
        "id", "number", "key", "function", "state", "open", "parked", "source", "source_number",
        "started", "ended", "questions", "asleep_until",
    }  # fmt: skip
    assert (tree["id"], tree["key"], tree["function"]) == (survey.id, "nightly", "survey")
    assert (tree["state"], tree["open"]) == (state_of(survey), survey.live)
    assert (tree["parked"], tree["source"], tree["questions"]) == (False, None, 0)
    assert isinstance(tree["started"], float)
    assert (tree["ended"] is None) == survey.live


# --- tree


def test_tree_shows_every_call_with_its_path(survey: Journal):
    out = read(survey, "tree", survey.id)
    assert [line for line in out.splitlines() if "judge" in line]
    for path in ("1.1", "1.2", "1.3", "1.3.1", "1.4"):
        assert path in out, out


def test_tree_as_json_has_every_row_parents_first(survey: Journal):
    rows = data(survey, "tree", survey.id)
    assert [row["fn"] for row in rows] == ["survey", "count", "count", "judge", "count", "gate"]
    assert [row["path"] for row in rows] == ["1", "1.1", "1.2", "1.3", "1.3.1", "1.4"]
    assert [row["parent"] for row in rows[:4]] == [
        None,
        rows[0]["id"],
        rows[0]["id"],
        rows[0]["id"],
    ]
    assert rows[4]["parent"] == rows[3]["id"]
    assert [row["agent"] for row in rows] == [False, False, False, True, False, False]
    assert rows[-1]["state"] == rows[0]["state"] == state_of(survey)


def test_a_row_has_the_documented_fields(survey: Journal):
    row = data(survey, "tree", survey.id)[3]
    assert set(row) == {
        "id", "parent", "path", "fn", "agent", "state", "sequence", "tied", "args", "result",
        "error", "status", "model", "started", "ended", "tokens", "total_tokens", "cost",
        "total_cost", "questions", "notices", "seq",
    }  # fmt: skip
    assert (row["args"], row["result"], row["error"]) == ("text='moss'", "Quite short.", None)
    assert (row["tokens"], row["total_tokens"]) == (240, 240)
    assert (row["cost"], row["total_cost"]) == ("0.025", "0.025")
    assert (row["questions"], row["notices"]) == ([], 0)


def test_calls_made_in_parallel_share_a_number_and_are_tied(survey: Journal):
    rows = data(survey, "tree", survey.id)
    assert [(row["sequence"], row["tied"]) for row in rows[1:4]] == [
        (1, True), (1, True), (2, False)
    ]  # fmt: skip


def test_a_subtree_can_be_asked_for(survey: Journal):
    rows = data(survey, "tree", "1.3")
    assert [row["fn"] for row in rows] == ["judge", "count"]


@pytest.mark.parametrize("name", ["1", "nightly", "last", None])
def test_a_run_is_named_by_id_key_or_last_and_last_is_the_default(
    survey: Journal, name: str | None
):
    args = ["tree"] if name is None else ["tree", name]
    assert [row["id"] for row in data(survey, *args)] == [
        row["id"] for row in data(survey, "tree", survey.id)
    ]


# --- stack, transcript, flame


def test_stack_shows_what_runs_now_like_a_debugger(survey: Journal):
    out = read(survey, "stack", survey.id)
    if survey.live:
        at = [out.index(name) for name in ("survey", "gate")]
        assert at == sorted(at)
    assert "judge" not in out


def test_stack_as_json_has_the_frames(survey: Journal):
    frames = data(survey, "stack", survey.id)
    names = [frame["fn"] for frame in frames]
    assert names == (["survey", "gate"] if survey.live else ["survey"])


def test_transcript_shows_what_was_said_thought_and_called(survey: Journal):
    out = read(survey, "transcript", "1.3")
    for said in ("How long is moss?", "I had better look.", "count", "4", "Quite short."):
        assert said in out


def test_transcript_as_json_has_the_parts_and_links_calls_to_nodes(survey: Journal):
    parts = data(survey, "transcript", "1.3")
    assert [part["kind"] for part in parts] == PARTS
    system, user, thinking, call, result, text = parts
    assert (system["text"], system["length"]) == ("You judge plants.", 17)
    assert (user["text"], user["length"]) == ("How long is moss?", 17)
    assert (thinking["text"], thinking["redacted"]) == ("I had better look.", False)
    child = data(survey, "tree", "1.3.1")[0]["id"]
    assert (call["id"], call["name"], call["args"]) == ("c1", "count", {"text": "moss"})
    assert (call["node"], result["node"], result["id"]) == (child, child, "c1")
    assert (result["text"], result["error"]) == ("4", False)
    assert (text["text"], text["length"]) == ("Quite short.", 12)


@pytest.mark.parametrize("by", ["time", "tokens", "money"])
def test_flame_lays_all_calls_out_as_fractions(survey: Journal, by: str):
    flame = data(survey, "flame", survey.id, "--by", by)
    assert flame["by"] == by
    assert set(flame["frames"][0]) == {
        "id", "path", "fn", "state", "agent", "depth", "start", "width", "own", "value"
    }  # fmt: skip
    assert flame["frames"][0]["fn"] == "survey"
    assert (flame["frames"][0]["start"], flame["frames"][0]["width"]) == (0, 1)
    for frame in flame["frames"]:
        assert 0 <= frame["start"] <= frame["start"] + frame["width"] <= 1 + 1e-9, frame


def test_flame_by_tokens_has_the_tokens_of_the_whole_run(survey: Journal):
    assert data(survey, "flame", survey.id, "--by", "tokens")["total"] == 240


def test_flame_prints_the_calls(survey: Journal):
    out = read(survey, "flame", survey.id)
    assert "survey" in out
    assert "judge" in out


# --- questions


def test_a_run_that_asks_nothing_has_no_questions(survey: Journal):
    assert data(survey, "questions") == []


def test_questions_lists_what_waits_for_a_person(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    out = read(journal, "questions")
    for word in ("PATH", "Which colour?", "red", "blue"):
        assert word in out


def test_questions_as_json_have_the_documented_fields(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    [question] = data(journal, "questions")
    found = {name: question[name] for name in ("id", "node", "kind", "text", "choices")}
    assert found == {
        "id": "1-1", "node": 1, "kind": "human", "text": "Which colour?",
        "choices": ["red", "blue"],
    }  # fmt: skip


def test_ps_says_that_a_run_waits_for_a_person(tmp_path: Path):
    journal = survey_journals.parked(tmp_path)
    [tree] = data(journal, "ps")
    assert (tree["parked"], tree["open"], tree["questions"]) == (True, True, 1)


# --- runs that failed, and several runs


def test_tree_shows_what_failed_and_why(tmp_path: Path):
    journal = survey_journals.failed(tmp_path)
    out = read(journal, "tree", "bad")
    assert "ValueError" in out
    assert "cannot digest gravel" in out
    assert [row["error"] for row in data(journal, "tree", "bad")][-1] == (
        "ValueError: cannot digest gravel"
    )


def test_ps_has_many_runs_and_last_is_the_newest(tmp_path: Path):
    journal = survey_journals.failed(tmp_path)
    assert [tree["state"] for tree in data(journal, "ps")] == ["error", "canceled"]
    assert data(journal, "tree")[0]["id"] == journal.ids[1]


def test_a_fork_says_where_it_comes_from(tmp_path: Path):
    journal = survey_journals.forked(tmp_path)
    assert [tree["source"] is None for tree in data(journal, "ps")] == [True, False]


# --- diff


def test_diff_of_a_run_with_itself_is_0_and_says_the_same(survey: Journal):
    assert data(survey, "diff", survey.id, survey.id)["same"] is True


def test_diff_of_two_runs_is_1_and_shows_what_differs(tmp_path: Path):
    journal = survey_journals.forked(tmp_path)
    done = treefold("diff", 1, 2, "--store", journal.file)
    assert (done.code, done.err) == (1, ""), done
    assert "Rather long." in done.out
    assert "Quite short." in done.out


def test_diff_as_json_has_pairs_of_rows_and_what_changed(tmp_path: Path):
    journal = survey_journals.forked(tmp_path)
    done = treefold("diff", 1, 2, "--json", "--store", journal.file)
    assert done.code == 1
    assert done.json["same"] is False
    [judged] = [row for row in done.json["rows"] if row["a"] and row["a"]["fn"] == "judge"]
    assert (judged["same"], judged["b"]["result"]) == (False, "Rather long.")
    assert "result" in judged["changed"]


# --- where the journal is


def test_the_store_is_run_db_in_the_current_folder(survey: Journal):
    done = treefold("ps", "--json", cwd=survey.file.parent)
    assert [tree["id"] for tree in done.json] == [survey.id]


def test_the_store_may_be_named_by_the_environment(survey: Journal, tmp_path: Path):
    done = treefold("ps", "--json", cwd=tmp_path, env={"TREEFOLD_STORE": str(survey.file)})
    assert [tree["id"] for tree in done.json] == [survey.id]


def test_an_option_comes_before_the_environment(survey: Journal, tmp_path: Path):
    done = treefold(
        "ps", "--json", "--store", survey.file, env={"TREEFOLD_STORE": str(tmp_path / "no")}
    )
    assert [tree["id"] for tree in done.json] == [survey.id]


# --- nothing is written


@pytest.mark.parametrize("command", ["ps", "tree", "stack", "flame", "questions"])
def test_a_command_that_reads_leaves_the_journal_as_it_is(tmp_path: Path, command: str):
    journal = survey_journals.finished(tmp_path)
    before = journal.file.read_bytes()
    read(journal, command)
    assert journal.file.read_bytes() == before
