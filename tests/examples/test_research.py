"""``examples/research.py``, with models that play their parts."""

import pytest

from agent_scripts import asked, told
from research import QUESTION, TEXTS, answer
from treefold import ToolUse
from treefold.testing import ScriptedFailure, ScriptedModel, ScriptedRequest
from treefold.testing.scripted import Reply

PARTS = ["Why is it later?", "What fills the pond?", "What turns the wheel?"]
WORDS = {"later": "moon", "fills": "gate", "turns": "sluice"}  # each in one text only


def plays(request: ScriptedRequest) -> Reply:
    """Do what each agent is asked to, whichever comes first: three of them work in parallel."""
    prompt, results = asked(request), told(request)
    match request.functions:
        case ("return_result",):
            return ToolUse("call_1", "return_result", {"result": PARTS})
        case ("search", "read") if not results:
            (word,) = [word for part, word in WORDS.items() if part in prompt]
            return ToolUse("call_1", "search", {"word": word})
        case ("search", "read") if len(results) == 1:
            return ToolUse("call_2", "read", {"name": results[0].content.strip('[]"')})
        case ("search", "read"):
            return f"{results[1].content.splitlines()[0]}, as the text says."
        case _ if "experts" in prompt:
            return "Twice a tide, three hours after high water, which is later each day."
        case _ if "this was your answer" in prompt:
            return "A tide mill grinds twice a tide. High water is 50 minutes later each day."
        case _ if prompt.startswith("Write"):
            return "A tide mill grinds when it can."
        case _:
            return "Twice a tide."


def test_the_parts_are_looked_up_two_models_conclude_and_the_digest_is_polished(
    capsys: pytest.CaptureFixture[str],
):
    first, second = ScriptedModel(plays, name="one"), ScriptedModel("At ebb.", name="two")
    text = answer(QUESTION, TEXTS, {"first": first, "second": second})

    assert text == "A tide mill grinds twice a tide. High water is 50 minutes later each day."
    (reconciling,) = [asked(one) for one in first.requests if "experts" in asked(one)]
    assert "Twice a tide." in reconciling
    assert "At ebb." in reconciling
    writing, *_ = [asked(one) for one in first.requests if asked(one).startswith("Write")]
    for part, title in zip(PARTS, ["Tides", "Mill ponds", "Wheels"], strict=True):
        assert f"- {part}\n  {title}, as the text says." in writing
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert {
        "1.1 success split one",
        "1.2 success look_up one",
        "1.3 success look_up one",
        "1.4 success look_up one",
        "1.5 success conclude_ensemble",
        "1.5.2 success conclude two",
        "1.6 success digest_think_more",
        "1 success research",
    } <= set(lines)


def test_one_model_of_the_ensemble_may_fail(capsys: pytest.CaptureFixture[str]):
    first, second = ScriptedModel(plays, name="one"), ScriptedModel(ScriptedFailure(), name="two")
    text = answer(QUESTION, TEXTS, {"first": first, "second": second})
    assert text.startswith("A tide mill grinds twice a tide.")
    assert not [one for one in first.requests if "experts" in asked(one)]


def test_who_searches_for_too_long_has_to_say_what_it_has(capsys: pytest.CaptureFixture[str]):
    def never_stops(request: ScriptedRequest) -> Reply:
        if "search" not in request.functions:
            return plays(request)
        if "budget" in str(request.transcript[-1]):
            return "I found nothing."
        return ToolUse("call_1", "search", {"word": "miller"})

    first = ScriptedModel(never_stops)
    answer(QUESTION, TEXTS, {"first": first, "second": first})
    searching = [one for one in first.requests if "search" in one.functions]
    assert len(searching) == 3 * 9


def test_a_text_that_is_not_there_is_told_to_the_model_with_those_that_are():
    def reads_elsewhere(request: ScriptedRequest) -> Reply:
        if "read" in request.functions and not told(request):
            return ToolUse("call_1", "read", {"name": "../research.py"})
        return "I cannot read that." if "read" in request.functions else plays(request)

    first = ScriptedModel(reads_elsewhere)
    answer(QUESTION, TEXTS, {"first": first, "second": first})
    results = [result for request in first.requests for result in told(request)]
    assert len(results) == 3
    assert {result.is_error for result in results} == {True}
    assert "there is no text ../research.py; there are" in results[0].content
