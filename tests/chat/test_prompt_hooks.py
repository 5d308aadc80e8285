"""Hooks before a prompt is sent, exceptions of hooks, and hooks of `query()`."""

import asyncio
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    User,
    add,
    adding,
    answered,
    asked,
    by_name,
    options,
    serving,
    text_of,
    told,
    written,
)
from treefold import (
    AgentOptions,
    Client,
    HookDecision,
    PreToolUseEvent,
    ToolUseBlock,
    UserPromptSubmitEvent,
    query,
)
from wire.protocols import Protocol


def hooked(
    server: Any, protocol: Protocol | None = None, *, auto: bool = True, **hooks: Any
) -> AgentOptions:
    return options(server, protocol, tools=[add], auto_execute_tools=auto, hooks=by_name(**hooks))


async def test_a_blocked_prompt_is_not_sent_and_leaves_no_trace():
    async def block(event: UserPromptSubmitEvent) -> HookDecision | None:
        if "delete" in event.prompt:
            return HookDecision(continue_=False, reason="too dangerous")
        return None

    async with (
        serving(OPENAI.text("Hello.")) as server,
        Client(hooked(server, prompt=[block])) as client,
    ):
        with pytest.raises(RuntimeError, match="^Prompt blocked: too dangerous$"):
            await client.query("delete everything")
        assert (server.requests, client.history, client.turn_count) == ([], [], 0)
        assert text_of(await answered(client, "Hi")) == "Hello."
    assert told(server.requests[0]) == [User("Hi")]


async def test_a_hook_may_change_the_prompt():
    async def sanitize(event: UserPromptSubmitEvent) -> HookDecision | None:
        if "write" in event.prompt.lower():
            return HookDecision(modified_prompt=event.prompt + " (Confirm that this is safe)")
        return None

    async with (
        serving(OPENAI.text("ok"), OPENAI.text("ok")) as server,
        Client(hooked(server, prompt=[sanitize])) as client,
    ):
        await answered(client, "Write it")
        await answered(client, "Read it")
    assert told(server.requests[1]) == [
        User("Write it (Confirm that this is safe)"),
        Assistant("ok"),
        User("Read it"),
    ]
    assert written(client.history)[0] == User("Write it (Confirm that this is safe)")


async def test_a_prompt_hook_sees_the_history_so_far():
    seen: list[Any] = []

    async def note(event: UserPromptSubmitEvent) -> None:
        seen.append((event.prompt, written(event.history)))

    async with (
        serving(OPENAI.text("one"), OPENAI.text("two")) as server,
        Client(hooked(server, prompt=[note])) as client,
    ):
        await answered(client, "1")
        await answered(client, "2")
    assert seen == [("1", []), ("2", [User("1"), Assistant("one")])]


# --- exceptions


class HookFaultError(Exception):
    pass


async def broken(event: Any) -> None:
    raise HookFaultError("the hook is broken")


async def test_an_exception_of_a_prompt_hook_passes_through_and_nothing_is_sent():
    async with (
        serving(OPENAI.text("ok")) as server,
        Client(hooked(server, prompt=[broken])) as client,
    ):
        with pytest.raises(HookFaultError):
            await client.query("Hi")
        assert (server.requests, client.history) == ([], [])


@pytest.mark.parametrize("auto", [False, True], ids=["manual", "automatic"])
async def test_an_exception_of_a_hook_before_a_call_aborts_and_the_next_request_is_valid(
    protocol: Protocol, *, auto: bool
):
    script = [protocol.calls(adding("a")), protocol.text("ok")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(hooked(server, protocol, auto=auto, pre=[broken])) as client,
    ):
        with pytest.raises(HookFaultError):
            await answered(client, "25 + 17?")
        assert text_of(await asked(client, "Well?")) == "ok"
    [*_, result, prompt] = told(server.requests[1], protocol)
    assert isinstance(result, Result)
    assert (result.id, result.failed) == ("a", True)
    assert prompt == User("Well?")


@pytest.mark.parametrize("auto", [False, True], ids=["manual", "automatic"])
async def test_an_exception_of_a_hook_after_a_call_aborts_and_the_result_is_kept(*, auto: bool):
    script = [OPENAI.calls(adding("a")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, post=[broken])) as client,
    ):
        with pytest.raises(HookFaultError):
            await answered(client, "25 + 17?")
        assert text_of(await asked(client, "Well?")) == "ok"
    assert told(server.requests[1])[-2:] == [Result("a", 42), User("Well?")]


# --- without a client


async def run(given: AgentOptions, prompt: str) -> list[Any]:
    async with asyncio.timeout(60):
        return [message.content[0] async for message in query(prompt, given)]


async def test_hooks_work_with_query_too():
    seen: list[str] = []

    async def note(event: Any) -> None:
        seen.append(type(event).__name__)

    script = [OPENAI.calls(adding("a")), OPENAI.text("42.")]
    async with serving(*script) as server:
        given = hooked(server, pre=[note], post=[note], prompt=[note])
        assert text_of(await run(given, "25 + 17?")) == "42."
    assert seen == ["UserPromptSubmitEvent", "PreToolUseEvent", "PostToolUseEvent"]


async def test_query_blocks_prompts_and_calls_and_changes_both():
    async def shorten(event: UserPromptSubmitEvent) -> HookDecision:
        if "delete" in event.prompt:
            return HookDecision(continue_=False, reason="no")
        return HookDecision(modified_prompt=event.prompt[:5])

    async def instead(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(modified_input={"a": 0, "b": 0})

    async def never(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(continue_=False, reason="no sums")

    async with serving(OPENAI.calls(adding("a")), OPENAI.calls(adding("b"))) as server:
        changed = hooked(server, auto=False, pre=[instead], prompt=[shorten])
        with pytest.raises(RuntimeError, match="^Prompt blocked: no$"):
            await run(changed, "delete it")
        assert await run(changed, "25 + 17?") == [ToolUseBlock("a", "add", {"a": 0, "b": 0})]
        with pytest.raises(RuntimeError, match="^Tool use blocked: no sums$"):
            await run(hooked(server, auto=False, pre=[never]), "25 + 17?")
    assert [told(request) for request in server.requests] == [[User("25 + ")], [User("25 + 17?")]]
