"""Scripts of a model as JSON, and as they are named on the command line."""

from pathlib import Path

import pytest

from command_results import treefold
from treefold import ModelText, ThinkingPart, ToolUse
from treefold.core.errors import InvalidValueError
from treefold.testing import ScriptedFailure
from treefold.testing.script_file import read_script

ADDING = '''
from treefold import agent, tool
from treefold.testing import ScriptedModel

@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@agent(uses=[add])
def total(task: str) -> str:
    return task

MODEL = ScriptedModel("a model")
REPLIES = ["a list"]
NUMBER = 5

def reply(request):
    return f"a function: {request.transcript[0].text}"
'''
SCRIPT = '[[{"thinking": "Hm."}, {"call": "add", "args": {"a": 1, "b": 2}}], "It is 3."]'


def test_a_script_has_texts_parts_and_failures(tmp_path: Path):
    path = tmp_path / "script.json"
    path.write_text(
        '["Hi.", {"call": "now"}, ["One ", {"thinking": "hm"}, {"call": "add", "args": {"a": 1}},'
        ' {"text": "two."}], {"status": 429}, {"status": 500, "message": "no"}]'
    )
    assert read_script(path) == [
        [ModelText("Hi.")],
        [ToolUse("call_2_1", "now")],
        [
            ModelText("One "),
            ThinkingPart("hm"),
            ToolUse("call_3_3", "add", {"a": 1}),
            ModelText("two."),
        ],
        ScriptedFailure(429),
        ScriptedFailure(500, "no"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON: "),
        ('"Hi."', "must be a JSON list of replies"),
        ('["Hi.", {"cal": "add"}]', "reply 2 must be a text, "),
        ('[{"call": "add", "args": [1]}]', "reply 1 must be a text, "),
        ('[{"text": "a", "thinking": "b"}]', "reply 1 must be a text, "),
        ('[["a", 5]]', "got ['a', 5]"),
        ('[{"status": "500"}]', "reply 1 must be a text, "),
    ],
)
def test_what_is_no_script_is_refused_with_the_number_of_the_reply(
    tmp_path: Path, text: str, said: str
):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError) as raised:
        read_script(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "adding.py").write_text(ADDING)
    (tmp_path / "script.json").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "result"),
    [
        ("scripted:script.json", "It is 3."),
        ("scripted:adding.py:MODEL", "a model"),
        ("scripted:adding.py:REPLIES", "a list"),
        ("scripted:adding.py:reply", "a function: 1 + 2"),
    ],
)
def test_a_run_may_be_answered_by_a_script(folder: Path, model: str, result: str):
    task = ["--task", "1 + 2", "--model", model]
    done = treefold("run", "adding.py:total", *task, cwd=folder)
    assert (done.code, done.out) == (0, f"{result}\n")


def test_a_chat_may_be_answered_by_a_script(folder: Path):
    said = "1 + 2\n"
    options = ["--model", "scripted:script.json", "--tools", "adding.py:add"]
    done = treefold("chat", *options, cwd=folder, stdin=said)
    assert (done.code, done.out) == (0, "It is 3.\n")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("scripted:nowhere.json", "nowhere.json cannot be read (No such file or directory)"),
        (
            "scripted:adding.py:NUMBER",
            "adding.py has no 'NUMBER' that is a model, a list of replies or a function",
        ),
        ("scripted:nowhere.py:reply", "there is no file nowhere.py"),
    ],
)
def test_a_script_that_is_not_there_is_named(folder: Path, model: str, said: str):
    done = treefold("run", "adding.py:total", "--task", "x", "--model", model, cwd=folder)
    done.refused(said)
