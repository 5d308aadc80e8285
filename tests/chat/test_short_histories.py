"""Keeping a conversation short: by hand, and never silently."""

import asyncio
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    User,
    add,
    adding,
    asked,
    call,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import Client, compact_messages, estimate_tokens, truncate_messages
from wire import Stall, stream
from wire.protocols import Protocol

SYSTEM_MESSAGE = {"role": "system", "content": "You are helpful"}
HELLO = [SYSTEM_MESSAGE, {"role": "user", "content": "Hello!"}]


def talk(exchanges: int, words: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(exchanges):
        found.append({"role": "user", "content": f"q{number} " * words})
        found.append({"role": "assistant", "content": f"a{number} " * words})
    return found


# --- how many tokens


@pytest.fixture
def without_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)  # importing it fails


@pytest.mark.usefixtures("without_tiktoken")
def test_without_tiktoken_four_characters_are_a_token():
    assert estimate_tokens(HELLO) == len("systemYou are helpfuluserHello!") // 4
    assert estimate_tokens(HELLO, model="qwen2.5-32b-instruct") == estimate_tokens(HELLO)
    assert estimate_tokens([]) == 0


@pytest.mark.usefixtures("without_tiktoken")
def test_without_tiktoken_the_estimate_is_near_enough_for_plain_english():
    text = "The quick brown fox jumps over the lazy dog. " * 100  # 10 tokens each, for most models
    assert 750 <= estimate_tokens([{"role": "user", "content": text}]) <= 1250


@pytest.mark.usefixtures("without_tiktoken")
def test_calls_and_results_count_too():
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}' * 50}
    calls = [{"id": "c", "type": "function", "function": function}]
    made = {"role": "assistant", "content": None, "tool_calls": calls}
    assert estimate_tokens([made]) >= 200


@pytest.mark.parametrize("fault", [KeyError("no such model"), OSError("no network")])
def test_a_model_or_a_table_that_tiktoken_does_not_have_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Exception
):
    def fails(name: str) -> Any:
        raise fault

    made = ModuleType("tiktoken")  # which has to fetch its tables from afar
    vars(made).update(encoding_for_model=fails, get_encoding=fails)
    vars(made)["encoding_name_for_model"] = fails if isinstance(fault, KeyError) else str
    monkeypatch.setitem(sys.modules, "tiktoken", made)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert estimate_tokens(HELLO, model="qwen3") == 31 // 4


# --- cut by number


def test_the_last_messages_are_kept():
    messages = talk(10)
    assert truncate_messages(messages, keep=4) == messages[-4:]
    assert truncate_messages(messages) == messages[-10:]


def test_a_system_message_at_the_beginning_is_kept_on_top():
    messages = [SYSTEM_MESSAGE, *talk(10)]
    assert truncate_messages(messages, keep=3) == [SYSTEM_MESSAGE, *messages[-3:]]
    assert truncate_messages(messages, keep=0) == [SYSTEM_MESSAGE]
    assert truncate_messages(messages, 3, preserve_system=False) == messages[-3:]
    assert truncate_messages(messages, keep=0, preserve_system=False) == []


def test_nothing_is_cut_when_there_is_little_but_the_list_is_a_new_one():
    messages = talk(2)
    for keep in (4, 100):
        same = truncate_messages(messages, keep=keep)
        assert same == messages
        assert same is not messages
    assert truncate_messages([], keep=5) == []
    assert truncate_messages(talk(2), keep=0) == []


def test_what_was_given_is_not_changed():
    messages = [SYSTEM_MESSAGE, *talk(10)]
    before = deepcopy(messages)
    truncate_messages(messages, keep=2)
    compact_messages(messages, max_tokens=5)
    assert messages == before


# --- cut by tokens


def test_whole_exchanges_are_cut_until_the_rest_fits():
    messages = [SYSTEM_MESSAGE, *talk(20, words=20)]
    limit = estimate_tokens(messages) // 3
    left = compact_messages(messages, max_tokens=limit)
    assert left[0] == SYSTEM_MESSAGE
    assert left[1:] == messages[len(messages) - len(left) + 1 :]
    assert left[1]["role"] == "user"
    assert len(left) > 3
    assert estimate_tokens(left) <= limit
    one_more = [SYSTEM_MESSAGE, *messages[-(len(left) + 1) :]]
    assert estimate_tokens(one_more) > limit


def test_calls_stay_with_their_results_and_with_the_question():
    function = {"name": "add", "arguments": "{}"}
    calls = [{"id": "c", "type": "function", "function": function}]
    exchange = [
        {"role": "user", "content": "question " * 20},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "name": "add", "content": "result " * 20},
        {"role": "assistant", "content": "answer " * 20},
    ]
    messages = exchange * 6
    whole = estimate_tokens(messages)
    for limit in range(estimate_tokens(exchange) + 10, whole, whole // 13):
        left = compact_messages(messages, max_tokens=limit)
        assert left == exchange * (len(left) // 4)
        assert 0 < estimate_tokens(left) <= limit


def test_what_fits_is_left_as_it_is():
    messages = [SYSTEM_MESSAGE, *talk(3)]
    same = compact_messages(messages, max_tokens=10_000)
    assert same == messages
    assert same is not messages


# --- the four patterns


async def test_stateless_agents_begin_anew_with_each_task():
    tasks = ["one", "two", "three"]
    async with serving(*[OPENAI.text("ok") for _ in tasks]) as server:
        for task in tasks:
            async with Client(options(server)) as client:
                await asked(client, task)
    assert [told(request) for request in server.requests] == [[User(task)] for task in tasks]


async def test_a_history_can_be_cut_at_natural_breakpoints(protocol: Protocol):
    script = [protocol.text(f"answer {n}") for n in range(4)]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        for number in range(4):
            await asked(client, f"task {number}")
            client.message_history = truncate_messages(client.history, keep=2)
    assert told(server.requests[3], protocol) == [
        User("task 2"),
        Assistant("answer 2"),
        User("task 3"),
    ]
    assert written(client.history) == [User("task 3"), Assistant("answer 3")]


async def test_a_history_can_be_cut_before_anybody_has_read_the_answer(protocol: Protocol):
    silent = stream(Stall())
    async with (
        serving(silent, silent, silent, protocol.text("Done."), protocol=protocol) as server,
        Client(options(server, protocol)) as client,
        asyncio.timeout(60),
    ):
        for number in range(3):
            await client.query(f"task {number}")
            client.message_history = truncate_messages(client.history, keep=2)
        assert text_of(await asked(client, "task 3")) == "Done."
        tasks = [User("task 1"), User("task 2"), User("task 3")]
        assert written(client.history) == [*tasks, Assistant("Done.")]
    said = [one for one in told(server.requests[3], protocol) if isinstance(one, User)]
    assert "\n\n".join(one.text for one in said) == "task 1\n\ntask 2\n\ntask 3"


async def test_a_budget_of_tokens_can_be_watched():
    async with (
        serving(*[OPENAI.text("long " * 100) for _ in range(6)]) as server,
        Client(options(server)) as client,
    ):
        for number in range(6):
            await asked(client, f"question {number}")
            if estimate_tokens(client.history) > 300:
                client.message_history = truncate_messages(client.history, keep=2)
            assert estimate_tokens(client.history) <= 300
    assert all(len(told(request)) <= 5 for request in server.requests)


async def test_facts_can_be_kept_outside_and_the_history_cleared(protocol: Protocol):
    script = [protocol.text("Whales are mammals."), protocol.text("Yes.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol)) as client,
    ):
        fact = text_of(await asked(client, "Research whales."))
        client.message_history = truncate_messages(client.history, keep=0)
        assert client.history == []
        await asked(client, f"Based on: {fact} Do they breathe air?")
    assert told(server.requests[1], protocol) == [
        User("Based on: Whales are mammals. Do they breathe air?")
    ]


@pytest.mark.parametrize("keep", range(6))
async def test_a_history_cut_anywhere_can_be_sent(protocol: Protocol, keep: int):
    script = [protocol.calls(adding("a")), protocol.text("42."), protocol.text("Fine.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(options(server, protocol, tools=[add], auto_execute_tools=True)) as client,
    ):
        await asked(client, "25 + 17?")
        client.message_history = truncate_messages(client.history, keep=keep)
        assert len(client.history) == min(keep, 4)
        assert text_of(await asked(client, "Thanks.")) == "Fine."
    sent = told(server.requests[2], protocol)
    assert sent[-1] == User("Thanks.")
    if keep >= 4:
        assert sent == [
            User("25 + 17?"),
            Assistant("", (call("a", "add", a=25, b=17),)),
            Result("a", 42),
            Assistant("42."),
            User("Thanks."),
        ]


async def test_nothing_is_cut_unless_somebody_does_it():
    async with (
        serving(*[OPENAI.text("long " * 2000) for _ in range(8)]) as server,
        Client(options(server)) as client,
    ):
        for number in range(8):
            await asked(client, f"question {number}")
        assert len(client.history) == 16
    assert len(told(server.requests[-1])) == 15
