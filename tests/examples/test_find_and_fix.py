"""``examples/find_and_fix.py``, with a model that plays its part."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_scripts import told
from find_and_fix import PROJECT, fix
from treefold import AgentException, Question, TokenUsage, ToolUse
from treefold.testing import ScriptedModel

WRONG = {
    "file": "spans.py",
    "line": 25,
    "cause": "free() may go back in time.",
    "remedy": "Never let begin become smaller.",
}
RIGHT = {
    "file": "spans.py",
    "line": 11,
    "cause": "A span within the one before cuts that one short.",
    "remedy": "Keep the later of both ends.",
}
TRY = (
    f"{shlex.quote(sys.executable)} -B -c"
    " 'import spans; print(spans.merged([(540, 720), (570, 600)]))'"
)


def edit(**args: str) -> ToolUse:
    return ToolUse("call_1", "text_editor", {"path": "spans.py", **args})


def report(content: Mapping[str, object]) -> ToolUse:
    return ToolUse("call_2", "return_result", content)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=ignored))


def passes(project: Path) -> bool:
    command = [sys.executable, "-B", "-m", "unittest"]
    return subprocess.run(command, cwd=project, capture_output=True, timeout=60).returncode == 0


def test_a_wrong_guess_is_followed_by_a_right_one_and_the_bug_is_fixed_on_disk(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    model = ScriptedModel(
        edit(command="view"),
        report(WRONG),
        edit(command="str_replace", old_str="begin = end\n", new_str="begin = max(begin, end)\n"),
        "I let begin only grow.",
        ToolUse("call_1", "bash", {"command": TRY}),
        report(RIGHT),
        edit(command="str_replace", old_str="[0], end)", new_str="[0], max(found[-1][1], end))"),
        "I keep the later end.",
        usage=TokenUsage(input=90, output=10),
    )
    assert not passes(project)
    assert fix(project, model)

    assert passes(project)
    assert (
        "found[-1] = (found[-1][0], max(found[-1][1], end))" in (project / "spans.py").read_text()
    )
    assert [result.content for result in told(model.requests[5])] == ["[(540, 600)]"]
    printed = capsys.readouterr().out
    assert "round 1: the tests fail\n  spans.py, line 25: free() may go back in time." in printed
    assert "round 2: the tests fail\n  spans.py, line 11: A span within" in printed
    assert "\n✓ 1 fix_bug(rounds=3) → True" in printed
    assert printed.endswith("800 tokens at an unknown price\n\nthe tests pass\n")


def test_it_ends_after_so_many_rounds_if_nothing_helps(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    model = ScriptedModel(report(WRONG), "I did nothing.", report(WRONG), "I did nothing again.")
    assert not fix(project, model, rounds=2)
    assert capsys.readouterr().out.endswith("the tests still fail after 2 rounds\n")


def test_nobody_is_asked_if_there_is_nothing_to_fix(project: Path):
    source = project / "spans.py"
    source.write_text(source.read_text().replace("[0], end)", "[0], max(found[-1][1], end))"))
    model = ScriptedModel()
    assert fix(project, model)
    assert model.requests == []


def test_an_agent_that_gives_up_ends_it_with_its_reason_and_the_tree(
    project: Path, capsys: pytest.CaptureFixture[str]
):
    model = ScriptedModel(ToolUse("call_1", "raise_exception", {"msg": "there is no bug"}))
    with pytest.raises(AgentException, match="there is no bug"):
        fix(project, model)
    assert "\n✗ 1 fix_bug(rounds=3) → AgentException: there is no bug" in capsys.readouterr().out


def test_the_editor_shows_no_file_outside_the_project(project: Path):
    model = ScriptedModel(
        edit(command="view", path="../secret.txt"), report(WRONG), "I cannot do that."
    )
    (project.parent / "secret.txt").write_text("the secret")
    fix(project, model, rounds=1)
    (result,) = told(model.requests[1])
    assert result.is_error
    assert "the secret" not in result.content


def test_a_person_approves_commands_and_edits_and_may_refuse_one(project: Path):
    model = ScriptedModel(
        edit(command="view"),
        ToolUse("call_1", "bash", {"command": "touch made.txt"}),
        report(RIGHT),
        edit(command="str_replace", old_str="[0], end)", new_str="[0], max(found[-1][1], end))"),
        "I keep the later end.",
    )
    asked: list[str] = []

    def approve(question: Question) -> str:
        asked.append(question.text)
        answers = {1: "perhaps", 2: "deny: make no files"}
        return answers.get(len(asked), "yes")

    assert fix(project, model, approve=approve)

    assert passes(project)
    command, again, change = asked
    assert command == again == "Run this?\ntouch made.txt"
    assert change.startswith("str_replace spans.py?\nold_str: [0], end)\nnew_str: ")
    assert "make no files" in told(model.requests[2])[-1].content
    assert not (project / "made.txt").exists()
