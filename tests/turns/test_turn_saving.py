"""`to_dict()` and `Turn.from_dict()`, here and in another process."""

import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import warm_python
from support import travel
from treefold import FromFile, StopReason, Turn, UnregisteredToolError, tool

FIELDS = {
    "uuid",
    "tool_name",
    "kwargs",
    "metadata",
    "timeout",
    "start_time",
    "end_time",
    "stop_reason",
    "output",
}

RESTORE = """
import asyncio, json, sys
from treefold import Turn, tool

@tool
async def add(a: int, b: int) -> int:
    return a + b

turn = Turn.from_dict(json.load(sys.stdin))
before = turn.to_dict()
value = asyncio.run(turn.returning())
print(json.dumps({"before": before, "value": value, "reason": turn.stop_reason.name}))
"""


def adding() -> Turn:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    return Turn(add, timeout=5, kwargs={"a": 1, "b": 2}, metadata={"who": "me"})


def test_a_new_turn_as_a_dict() -> None:
    turn = adding()
    data = travel(turn.to_dict())

    assert {name: data[name] for name in FIELDS} == {
        "uuid": str(turn.uuid),
        "tool_name": "add",
        "kwargs": {"a": 1, "b": 2},
        "metadata": {"who": "me"},
        "timeout": 5,
        "start_time": None,
        "end_time": None,
        "stop_reason": None,
        "output": None,
    }


async def test_a_finished_turn_as_a_dict_has_iso_times() -> None:
    turn = adding()
    await turn.returning()
    data = travel(turn.to_dict())

    assert turn.start_time is not None
    assert turn.end_time is not None
    assert data["start_time"] == turn.start_time.isoformat()
    assert data["end_time"] == turn.end_time.isoformat()
    assert datetime.fromisoformat(data["start_time"]) == turn.start_time
    assert data["output"] == 3
    assert StopReason(data["stop_reason"]) is StopReason.COMPLETED


async def test_a_restored_turn_equals_the_saved_one() -> None:
    turn = adding()
    await turn.returning()
    restored = Turn.from_dict(travel(turn.to_dict()))

    assert restored.to_dict() == turn.to_dict()
    assert (restored.uuid, restored.tool) == (turn.uuid, turn.tool)
    assert (restored.start_time, restored.end_time) == (turn.start_time, turn.end_time)
    assert (restored.stop_reason, restored.output) == (StopReason.COMPLETED, 3)
    assert (restored.metadata, restored.timeout) == ({"who": "me"}, 5)


async def test_a_restored_turn_can_be_run() -> None:
    assert await Turn.from_dict(travel(adding().to_dict())).returning() == 3


async def test_positional_arguments_and_tags_survive() -> None:

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    restored = Turn.from_dict(travel(Turn(add, args=[1, 2], tags=["io"]).to_dict()))

    assert (list(restored.args), restored.tags) == ([1, 2], frozenset({"io"}))
    assert await restored.returning() == 3


async def test_an_argument_that_stands_in_a_file_is_still_read_from_it(tmp_path: Path) -> None:
    @tool
    async def join(first: str, second: str, more: dict[str, str]) -> str:
        return first + second + str(more)

    note, lookalike = FromFile(tmp_path / "note.txt"), {"$from_file": "mine"}
    turn = Turn(join, args=[note], kwargs={"second": note, "more": lookalike})
    restored = Turn.from_dict(travel(turn.to_dict()))
    (tmp_path / "note.txt").write_text("hi ")
    assert await restored.returning() == f"hi hi {lookalike}"


async def test_a_failed_turn_is_restored_as_failed() -> None:

    @tool
    async def fail() -> None:
        raise RuntimeError

    turn = Turn(fail)
    with pytest.raises(RuntimeError):
        await turn.returning()

    restored = Turn.from_dict(travel(turn.to_dict()))

    assert (restored.stop_reason, restored.output) == (StopReason.ERROR, None)
    assert restored.end_time == turn.end_time


async def test_the_output_of_a_stream_survives() -> None:

    @tool
    async def two() -> Any:
        yield 1
        yield 2

    turn = Turn(two)
    async for _ in turn.yielding():
        pass

    assert Turn.from_dict(travel(turn.to_dict())).output == turn.output


async def test_hooks_are_not_saved() -> None:
    seen: list[str] = []
    turn = adding()

    @turn.before_run
    async def before(turn: Turn) -> None:
        seen.append("before")

    data = travel(turn.to_dict())
    restored = Turn.from_dict(data)
    await restored.returning()

    assert (seen, list(restored.hooks), "hooks" in data) == ([], [], False)


def test_a_subtool_is_saved_by_its_scoped_name() -> None:

    @tool
    async def users() -> None: ...

    @users.subtool()
    async def create() -> None: ...

    data = travel(Turn(create).to_dict())

    assert data["tool_name"] == "users.create"
    assert Turn.from_dict(data).tool is create


def test_a_turn_whose_tool_is_not_registered_cannot_be_restored() -> None:
    data = travel(adding().to_dict()) | {"tool_name": "subtract"}

    with pytest.raises(UnregisteredToolError, match="subtract"):
        Turn.from_dict(data)


def test_a_turn_is_restored_and_run_in_another_process() -> None:
    data = travel(adding().to_dict())

    done = subprocess.run(
        warm_python.command("-c", RESTORE),
        input=json.dumps(data),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stderr == ""
    assert json.loads(done.stdout) == {"before": data, "value": 3, "reason": "COMPLETED"}
