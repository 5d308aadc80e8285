"""``examples/chat_session.py``, each run a process, with a server that plays the model."""

import re
from pathlib import Path

import pytest

from chat_helpers import Assistant, Result, User, call, serving
from chat_session import show_sessions
from example_runs import Run, calling, said, start
from treefold import SessionStore
from wire import ModelServer, openai_wire
from wire.openai_wire import MODEL

PLAN, FAULT = "First the river, then lunch.", "It starts too early."
FIRST = [
    User("Plan a day."),
    Assistant(calls=(call("call_1", "criticize", plan=PLAN),)),
    Result("call_1", FAULT),
    Assistant("Lunch, then the river."),
]
SCRIPT = (
    openai_wire.calls([calling("call_1", "criticize", plan=PLAN)]),
    openai_wire.text(FAULT),
    openai_wire.text("Lunch, ", "then the river."),
)


async def talk(server: ModelServer, store: Path, *options: str) -> Run:
    run = await start("chat_session", *options, "--store", str(store), server=server)
    return Run(run.code, re.sub(r" +\d+\.\d s$", "", run.printed, flags=re.MULTILINE))


async def test_the_agent_is_asked_like_any_tool_and_is_below_the_turn_in_the_tree(tmp_path: Path):
    async with serving(*SCRIPT) as server:
        run = await talk(server, tmp_path / "chats.db", "Plan a day.")
    assert run == Run(
        0,
        "(0 messages so far)\n"
        "Lunch, then the river.\n\n"
        "✓ 1 chat turn(prompt='Plan a day.', session='main') → 'Lunch, then the river.'  "
        "54 tokens\n"
        "└─ ✓ 1.1 criticize(plan='First the river, then lunch.') → 'It starts too early.'  "
        "18 tokens\n",
    )
    _, critic, last = server.requests
    assert said(critic) == [User(f"What is wrong with this plan?\n\n{PLAN}")]
    assert said(last) == FIRST[:-1]


async def test_the_next_run_goes_on_and_a_fork_leaves_the_session_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = tmp_path / "chats.db"
    async with serving(*SCRIPT, *map(openai_wire.text, ["A museum.", "No.", "Yes."])) as server:
        await talk(server, store, "Plan a day.")
        forked = await talk(server, store, "And if it rains?", "--fork", "rain")
        await talk(server, store, "Is that open?", "--session", "rain")
        again = await talk(server, store, "Is that nice?")
        url = server.url

    assert forked.printed.splitlines()[:2] == ["(4 messages so far)", "A museum."]
    assert again.printed.splitlines()[:2] == ["(4 messages so far)", "Yes."]
    in_fork = [*FIRST, User("And if it rains?")]
    assert [said(request) for request in server.requests[3:]] == [
        in_fork,
        [*in_fork, Assistant("A museum."), User("Is that open?")],
        [*FIRST, User("Is that nice?")],
    ]
    show_sessions(store)
    model = f"openai:{MODEL}@{url}/v1"
    assert capsys.readouterr().out == (
        f"main: 'Plan a day.', 3 requests, by {model}\n"
        f"rain: 'Plan a day.', 4 requests, by {model}\n"
    )


async def test_a_fork_takes_no_name_that_is_taken(tmp_path: Path):
    store = tmp_path / "chats.db"
    with SessionStore(store) as sessions:
        sessions.open("rain")
    run = await start("chat_session", "--local", "--fork", "rain", "--store", str(store))
    assert run == Run(
        1,
        "(0 messages so far)\n",
        "chat_session: there already is a session 'rain'; choose another name, or delete it\n",
    )


async def test_what_is_kept_is_listed(tmp_path: Path):
    store = tmp_path / "chats.db"
    with SessionStore(store) as sessions:
        sessions.open("main", model="local", preview="Where to?")
    run = await start("chat_session", "--list", "--store", str(store))
    assert run == Run(0, "main: 'Where to?', 0 requests, by local\n")


async def test_the_model_in_this_process_is_asked_for_by_local(tmp_path: Path):
    run = await start(
        "chat_session",
        "--local",
        "--store",
        str(tmp_path / "chats.db"),
        TREEFOLD_CACHE=str(tmp_path),
    )
    assert run.code == 1
    assert "'treefold local fetch'" in run.complaints.splitlines()[0]


@pytest.mark.parametrize(
    "name", ["calculator_tools", "chat_hooks", "chat_session", "context_management"]
)
async def test_without_a_model_each_example_of_chat_says_which_variable_to_set(name: str):
    assert await start(name) == Run(
        1, "", f"{name}: no model is named: give one, or set TREEFOLD_MODEL\n"
    )
