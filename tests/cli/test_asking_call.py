"""How the call that asks a question is shown."""

import io
from collections.abc import Sequence

import pytest

from treefold import Frame, Question, QuestionKind
from treefold.cli.asking_call import AskingCall, table_of

CALLER = Frame(function="tidy", kind="agent", node_id=1, path="1", arguments="folder='attic'")
CALL = Frame(function="delete\x1b[2J", kind="code", node_id=2, path="1.1", arguments="path='old\n'")
LONG = Frame(function="run", kind="code", node_id=2, path="1.1", arguments=f"command='{'x' * 90}'")
BELOW = Frame(function="wait", kind="code", node_id=3, path="1.1.1")  # what the call waits for
QUESTION = Question(
    id="2-1",
    node_id=2,
    kind=QuestionKind.Approval,
    text="Really delete it?\x1b[2J\nIt is old.",
    choices=("allow", "deny"),
)


def asking(*frames: Frame) -> AskingCall:
    def stack(id: int) -> Sequence[Frame]:
        assert id == 2
        return frames

    return AskingCall.of(QUESTION, stack)


@pytest.mark.parametrize(
    ("call", "columns", "heading"),
    [
        (
            asking(CALLER, CALL),
            100,
            ["? 1.1 delete\\x1b[2J(path='old\\n'), called by 1 tidy(folder='attic')"],
        ),
        (
            asking(CALLER, CALL),
            50,
            ["? 1.1 delete\\x1b[2J(path='old\\n')", "  called by 1 tidy(folder='attic')"],
        ),
        (
            asking(CALLER, LONG, BELOW),
            30,
            ["? 1.1 run(command='xxxxxxxxxx…", "  called by 1 tidy(folder='at…"],
        ),
        (asking(CALL), 100, ["? 1.1 delete\\x1b[2J(path='old\\n')"]),
    ],
)
def test_it_is_asked_with_its_path_its_arguments_and_its_caller(
    call: AskingCall, columns: int, heading: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(columns))
    asked = ["  approval: Really delete it?\\x1b[2J", "  It is old. [allow / deny]"]
    assert call.lines("? ") == [*heading, *asked]


def test_in_a_table_both_calls_have_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert table_of([asking(CALLER, LONG)], io.StringIO()) == [
        "PATH  CALL                      CALLED BY",
        "1.1   run(command='xxxxxxxxxx…  1 tidy(folder='attic')",
        "    approval: Really delete it?\\x1b[2J",
        "    It is old. [allow / deny]",
    ]
