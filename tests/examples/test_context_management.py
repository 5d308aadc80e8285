"""``examples/context_management.py``, with a server that plays the model."""

from pathlib import Path

import pytest

from chat_helpers import Assistant, User, options, serving
from context_management import TASKS, stateless, truncating, with_memory, within_budget
from example_runs import said, start
from treefold import estimate_tokens
from wire import Reply, openai_wire

ANSWERS = ["The Rhône.", "Lyon.", "The Passerelle."]
FIRST, SECOND, THIRD = map(User, TASKS)
RIVER, CITY, _ = map(Assistant, ANSWERS)


def script() -> list[Reply]:
    return [openai_wire.text(answer) for answer in ANSWERS]


async def test_a_client_for_each_task_sends_nothing_of_the_others():
    async with serving(*script()) as server:
        assert await stateless(options(server), TASKS) == ANSWERS
    assert [said(request) for request in server.requests] == [[FIRST], [SECOND], [THIRD]]


async def test_at_a_breakpoint_only_the_newest_messages_are_kept():
    async with serving(*script()) as server:
        assert await truncating(options(server), TASKS, keep=2) == ANSWERS
    assert [said(request) for request in server.requests] == [
        [FIRST],
        [FIRST, RIVER, SECOND],
        [SECOND, CITY, THIRD],
    ]


async def test_within_the_budget_all_is_kept_and_beyond_it_the_oldest_goes(
    capsys: pytest.CaptureFixture[str],
):
    both = [
        {"role": "user", "content": TASKS[0]},
        {"role": "assistant", "content": ANSWERS[0]},
        {"role": "user", "content": TASKS[1]},
        {"role": "assistant", "content": ANSWERS[1]},
    ]
    for budget, third in [
        (estimate_tokens(both), [FIRST, RIVER, SECOND, CITY, THIRD]),
        (estimate_tokens(both) - 1, [SECOND, CITY, THIRD]),
    ]:
        async with serving(*script()) as server:
            assert await within_budget(options(server), TASKS, budget) == ANSWERS
        assert [said(request) for request in server.requests] == [
            [FIRST],
            [FIRST, RIVER, SECOND],
            third,
        ]
    assert capsys.readouterr().out.count("(cut to 2 messages)") >= 1


async def test_only_what_was_remembered_is_taken_along():
    replies = [openai_wire.text("It is 1,006 km."), openai_wire.text("813 km."), *script()[:1]]
    async with serving(*replies) as server:
        topics = ["the Loire", "the Rhône"]
        assert await with_memory(options(server), topics, "Which is longer?") == "The Rhône."
    assert [said(request) for request in server.requests] == [
        [User("State one fact about the Loire, in one sentence.")],
        [User("State one fact about the Rhône, in one sentence.")],
        [
            User(
                "Which is longer?\n\nWhat we know:\n"
                "- the Loire: It is 1,006 km.\n- the Rhône: 813 km."
            )
        ],
    ]


async def test_from_the_command_line_all_four_are_shown():
    async with serving(*script() * 4) as server:
        run = await start("context_management", "--model", "other", server=server)
    assert run.code == 0
    headings = [line for line in run.printed.splitlines() if line.startswith("==")]
    assert headings == [
        "== A client for each task",
        "== The newest messages",
        "== As much as fits",
        "== A memory outside",
    ]
    assert {request.json["model"] for request in server.requests} == {"other"}


async def test_the_model_in_this_process_is_asked_for_by_local(tmp_path: Path):
    run = await start("context_management", "--local", TREEFOLD_CACHE=str(tmp_path))
    assert run.code == 1
    assert "'treefold local fetch'" in run.complaints.splitlines()[0]
