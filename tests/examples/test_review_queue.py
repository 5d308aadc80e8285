"""``examples/review_queue.py``, with a model that plays the reviewers and a person who types."""

import io
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent_scripts import asked, told
from treefold import NoAnswerError, ToolUse, registries
from treefold.testing import ScriptedModel

with registries():  # other tests look at all the tools that there are
    from review_queue import ENOUGH, FOLDER, review

BUG = {"line": 11, "kind": "bug", "text": "The end may move backwards."}
STYLE = {"line": 7, "kind": "style", "text": "The day could have a name."}
DOUBT = "a span within another cuts it short"
SPANS, TEST_SPANS = str(FOLDER / "spans.py"), str(FOLDER / "test_spans.py")


def reviewed(*findings: Mapping[str, object], doubts: tuple[str, ...] = ()) -> ToolUse:
    args = {"findings": list(findings), "doubts": list(doubts)}
    return ToolUse("call_1", "return_result", args)


def tries(command: str) -> ToolUse:
    return ToolUse("call_2", "bash", {"command": command})


def script() -> ScriptedModel:
    return ScriptedModel(
        reviewed(doubts=(DOUBT,)), reviewed(STYLE), tries("echo tried"), reviewed(BUG)
    )


def types(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_doubt_is_looked_into_after_the_other_files_with_what_they_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    types(monkeypatch, "allow\n")
    model = script()
    assert review(FOLDER, model) == [{"file": TEST_SPANS, **STYLE}, {"file": SPANS, **BUG}]

    first, second, third, fourth = model.requests
    assert asked(first).startswith(f"Found so far:\nnothing\n\nReview {SPANS}:")
    assert "def merged(spans" in asked(first)  # read from the file
    assert f"Review {TEST_SPANS}:" in asked(second)
    assert "The day could have a name." in asked(third)
    assert f"In {SPANS}, is this so: {DOUBT}" in asked(third)
    assert [result.content for result in told(fourth)] == ["tried"]
    printed = capsys.readouterr().out
    assert "An agent wants to run {'command': 'echo tried'}\nallow or deny? " in printed
    assert f"{SPANS}:11: bug: The end may move backwards." in printed
    assert "✓ 1 review_folder" in printed


@pytest.mark.parametrize(
    ("typed", "reason"),
    [("deny: not on this machine\n", "not on this machine"), ("", "there is nobody to ask")],
)
def test_a_command_that_is_not_allowed_does_not_run_and_the_agent_is_told_why(
    typed: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    types(monkeypatch, typed)
    model = script()
    review(FOLDER, model)
    (result,) = told(model.requests[-1])
    assert result.is_error
    assert result.content == f"DeniedError: bash was not allowed: {reason}"


def test_who_answers_something_else_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    types(monkeypatch, "perhaps\nallow\n")
    review(FOLDER, script())
    assert "'perhaps' does not answer the question" in capsys.readouterr().out


def test_with_yes_nobody_is_asked(monkeypatch: pytest.MonkeyPatch):
    types(monkeypatch, "")
    model = script()
    review(FOLDER, model, yes=True)
    assert [result.content for result in told(model.requests[-1])] == ["tried"]


def test_nobody_reads_on_when_there_are_bugs_enough(tmp_path: Path):
    for name in "abc":
        (tmp_path / f"{name}.py").write_text("pass\n")
    model = ScriptedModel(reviewed(BUG), reviewed(*[BUG] * ENOUGH, doubts=(DOUBT,)))
    assert len(review(tmp_path, model)) == 1 + ENOUGH
    assert len(model.requests) == 2  # neither the third file nor a closer look


def test_a_model_that_gives_no_review_ends_it(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(NoAnswerError):
        review(FOLDER, ScriptedModel(lambda request: "Looks good to me!"))
    assert "✗ 1 review_folder" in capsys.readouterr().out
