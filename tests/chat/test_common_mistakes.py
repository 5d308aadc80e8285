"""What people who use a chat for the first time stumble over."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import until
from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    AgentOptions,
    Client,
    HookDecision,
    ModelProviderException,
    PostToolUseEvent,
    SessionConflictError,
    SessionStore,
    ToolUse,
    ToolUseError,
    tool,
)
from treefold.chat.blocks import Block, ResultMessage
from treefold.core.errors import DuplicateNameError
from treefold.models import Retry
from treefold.runtime.limits.model_names import ModelNames
from treefold.testing import ScriptedModel
from wire.protocols import PROTOCOLS


@tool("add", "Add two numbers", {"a": int, "b": int})
def add(args: dict[str, int]) -> int:
    return args["a"] + args["b"]


@tool("look_up", "Look a word up", {"word": str})
def look_up(args: dict[str, Any]) -> str:
    return {"bee": "it buzzes"}[args["word"]]


def automatic(model: Any, *tools: Any, **more: Any) -> AgentOptions:
    return AgentOptions("Be brief.", model, tools=tools, auto_execute_tools=True, **more)


async def asked(client: Client, prompt: str) -> list[Block | ResultMessage]:
    async with asyncio.timeout(60):
        await client.query(prompt)
        return [block async for block in client.receive_messages()]


async def test_an_agent_below_a_client_talks_to_the_clients_model():
    sub = AgentFunction("think", "Think.", user_prompt_template="Think hard.")
    model = ScriptedModel(ToolUse("1", "think"), "I thought.", "Done.")
    async with Client(automatic(model, sub)) as client:
        await asked(client, "Go.")
    assert [request.system for request in model.requests] == ["Be brief.", "", "Be brief."]
    assert client.history[2]["content"] == "I thought."


async def test_an_agent_that_names_a_model_keeps_it():
    own = ScriptedModel("By myself.")
    sub = AgentFunction("think", "Think.", user_prompt_template="Think.", default_model=own)
    model = ScriptedModel(ToolUse("1", "think"), "Done.")
    async with Client(automatic(model, sub)) as client:
        await asked(client, "Go.")
    assert len(own.requests) == 1


async def test_a_question_that_nobody_can_answer_is_warned_of(caplog: pytest.LogCaptureFixture):
    async def approve(event: Any) -> HookDecision:
        return HookDecision(ask="May it?")

    model = ScriptedModel(ToolUse("1", "add", {"a": 1, "b": 2}), "3")
    options = automatic(model, add, hooks={HOOK_PRE_TOOL_USE: [approve]})
    with caplog.at_level(logging.WARNING):
        async with Client(options) as client:
            await client.query("Add.")
            await until(lambda: "asks" in caplog.text)
    assert "nobody can answer it: use it in a Runtime" in caplog.text


async def test_a_history_that_is_written_before_the_session_is_loaded_takes_its_place(
    tmp_path: Path,
):
    store = tmp_path / "chats.db"
    async with Client(automatic(ScriptedModel("One.")), session="s", store=store) as client:
        await asked(client, "First.")
    model = ScriptedModel("Two.")
    client = Client(automatic(model), session="s", store=store)
    client.message_history = [{"role": "user", "content": "Else."}]
    await asked(client, "Second.")
    await client.close()
    async with Client(automatic(ScriptedModel()), session="s", store=store) as again:
        assert again.history == [
            {"role": "user", "content": "Else.\n\nSecond."},
            {"role": "assistant", "content": "Two."},
        ]


async def test_a_session_in_memory_can_be_forked():
    async with Client(automatic(ScriptedModel("One.")), session="s", store=":memory:") as client:
        await asked(client, "First.")
        fork = await client.fork("t")
        assert fork.history == client.history
        await fork.close()


async def test_nothing_is_saved_before_something_was_said(tmp_path: Path):
    store = tmp_path / "chats.db"
    async with Client(automatic(ScriptedModel()), session="typo", store=store) as client:
        fork = await client.fork("fork")
        await fork.close()
    with SessionStore(store) as sessions:
        assert sessions.list() == []


async def test_a_fork_of_what_is_not_saved_yet_takes_no_name_that_is_there(tmp_path: Path):
    store = tmp_path / "chats.db"
    async with Client(automatic(ScriptedModel("One.")), session="old", store=store) as client:
        await asked(client, "First.")
    async with Client(automatic(ScriptedModel()), session="new", store=store) as client:
        with pytest.raises(DuplicateNameError):
            await client.fork("old")


async def test_a_conflict_is_told_once_and_as_what_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    store = tmp_path / "chats.db"
    async with Client(automatic(ScriptedModel("a", "b")), session="s", store=store) as first:
        await asked(first, "One.")
        async with Client(automatic(ScriptedModel("c")), session="s", store=store) as second:
            await asked(first, "Two.")
            with pytest.raises(SessionConflictError):
                await asked(second, "Three.")
    assert "was not saved to its end" in caplog.text


async def test_a_fork_has_options_of_its_own():
    async with Client(automatic(ScriptedModel())) as client:
        fork = await client.fork()
        assert fork.options is not client.options
        assert fork.options == client.options


async def test_a_hook_is_told_whether_a_call_failed():
    told: list[tuple[str, bool]] = []

    async def audit(event: PostToolUseEvent) -> None:
        told.append((event.tool_name, event.is_error))

    calls = [ToolUse("1", "add", {"a": 1, "b": 2}), ToolUse("2", "look_up", {"word": "wasp"})]
    model = ScriptedModel(calls, "Done.")
    options = automatic(model, add, look_up, hooks={HOOK_POST_TOOL_USE: [audit]})
    async with Client(options) as client:
        blocks = await asked(client, "Go.")
        await client.add_tool_result("3", "No.", "else", is_error=True)
    assert told == [("add", False), ("look_up", True), ("else", True)]
    assert [b.error for b in blocks if isinstance(b, ToolUseError)] == ["KeyError: 'wasp'"]


async def test_a_chat_does_not_wait_for_long_before_it_tries_again():
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    options = AgentOptions("", "qwen3", "http://127.0.0.1:9/v1")
    model: Any = options.find_model(ModelNames())
    assert model.retry.delays == (1, 2, 4, 8)
    given = AgentOptions(
        "", "qwen3", "http://127.0.0.1:9/v1", retry=Retry([3], sleep=sleep, if_refused=True)
    )
    async with Client(given) as client:
        with pytest.raises(ModelProviderException):
            await asked(client, "Hello?")
    assert waits == [3]


async def test_the_representation_of_a_client_names_its_session():
    client = Client(automatic(ScriptedModel(name="m")), session="trip", store=":memory:")
    assert repr(client) == "<Client m, 0 turns, session 'trip'>"
    await client.close()


async def test_a_failed_call_is_still_a_failed_one_in_a_history_that_was_cut():
    claude = PROTOCOLS[1]
    call = claude.calls(("1", "look_up", '{"word":"wasp"}'))
    async with (
        claude.server(call, claude.text("No."), claude.text("Yes.")) as server,
        Client(automatic(claude.model(server), look_up)) as client,
    ):
        await asked(client, "Look it up.")
        client.message_history = client.history[:3]
        await asked(client, "Really?")
    [_, _, results] = server.requests[-1].json["messages"][:3]
    assert results["content"][0]["is_error"] is True


async def test_no_call_is_without_a_result_after_an_interrupt():
    begun = asyncio.Event()

    @tool("wait", "Wait.", {})
    async def wait(args: dict[str, Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    calls = [ToolUse("1", "wait"), ToolUse("2", "add", {"a": 1, "b": 2})]
    async with Client(automatic(ScriptedModel(calls, "Fine."), wait, add)) as client:
        async with asyncio.timeout(60):
            await client.query("Go.")
            await begun.wait()
            await client.interrupt()
        results = [m["tool_call_id"] for m in client.history if m["role"] == "tool"]
        assert results == ["1", "2"]
        await asked(client, "And now?")
    assert client.history[-1] == {"role": "assistant", "content": "Fine."}
