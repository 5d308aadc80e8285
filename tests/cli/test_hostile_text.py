"""Hostile text on terminals and in pipes does nothing."""

import json
import re
from pathlib import Path

import pytest

import survey_functions
import survey_journals
from command_results import PATIENCE, treefold
from survey_journals import HOSTILE, Journal

# Whatever moves a cursor, sets a colour or turns the direction of text.
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u200e\u200f]"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return survey_journals.hostile(tmp_path_factory.mktemp("hostile"))


COMMANDS = [
    ["ps"], ["tree", "1"], ["tree", "2"], ["stack", "1"], ["transcript", "1"], ["flame", "1"],
    ["diff", "1", "2"], ["questions"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_hostile_text_cannot_act_on_a_terminal(hostile: Journal, command: list[str]):
    done = treefold(*command, "--store", hostile.file)
    assert done.code in {0, 1}, done
    assert HARMFUL.findall(done.out + done.err) == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_json_holds_no_raw_control_characters(hostile: Journal, command: list[str]):
    done = treefold(*command, "--json", "--store", hostile.file)
    json.loads(done.out)
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.out) == []


def test_the_whole_text_is_in_the_json_of_a_transcript(hostile: Journal):
    parts = treefold("transcript", "1", "--json", "--store", hostile.file).json
    assert parts[-1]["text"] == HOSTILE


def test_an_unknown_key_with_escapes_is_refused_in_plain_text(hostile: Journal):
    done = treefold("tree", "\x1b[31mno\u202e", "--store", hostile.file)
    done.refused()
    assert HARMFUL.findall(done.err) == []


def test_a_line_of_ten_megabytes_is_shown_cut(tmp_path: Path):
    with survey_functions.runtime(tmp_path / "run.db") as made:
        text = "x" * 10_000_000
        made.invoke(survey_functions.echo_all, {"text": text}).result(PATIENCE)
    done = treefold("tree", "--store", tmp_path / "run.db")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) < 1000
    assert len(treefold("tree", "--json", "--store", tmp_path / "run.db").json[0]["args"]) <= 160
