"""Which tools a model may use, at any depth."""

import asyncio
from typing import Any

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    Saying,
    User,
    add,
    adding,
    asked,
    call,
    fail,
    failed,
    failing,
    options,
    serving,
    text_of,
    told,
    until_failure,
)
from treefold import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    AgentOptions,
    Client,
    HookDecision,
    PreToolUseEvent,
    Question,
    QuestionKind,
    Runtime,
    ToolResult,
    ToolUse,
    ToolUseBlock,
    ToolUseError,
    tool,
)
from treefold.testing import ScriptedModel
from wire.protocols import Protocol

RULES = pytest.mark.parametrize(
    "rules",
    [
        {"disallowed_tools": ["add"]},
        {"disallowed_tools": [add]},
        {"allowed_tools": ["fail"]},
        {"allowed_tools": []},
        {"allowed_tools": ["add", "fail"], "disallowed_tools": ["add"]},
    ],
    ids=str,
)


def ruled(server: Any, protocol: Protocol | None = None, **changes: Any) -> AgentOptions:
    given = {"tools": [add, fail], "auto_execute_tools": True, "on_blocked": "tell", **changes}
    return options(server, protocol, **given)


@RULES
async def test_a_forbidden_call_is_told_to_the_model_if_the_options_say_so(rules: dict[str, Any]):
    script = [OPENAI.calls(adding("a")), OPENAI.text("A pity.")]
    async with serving(*script) as server, Client(ruled(server, **rules)) as client:
        found = await asked(client, "25 + 17?")
    [error] = [block for block in found if isinstance(block, ToolUseError)]
    assert error.error.startswith("Tool use blocked: ")
    assert text_of(found) == "A pity."
    assert told(server.requests[1]) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        failed("a", Saying("blocked"), "add"),
    ]


@RULES
@pytest.mark.parametrize("auto", [False, True], ids=["manual", "automatic"])
async def test_a_forbidden_call_raises_and_the_model_is_told_with_the_next_prompt(
    protocol: Protocol, rules: dict[str, Any], *, auto: bool
):
    script = [protocol.calls(adding("a")), protocol.text("A pity.")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(
            ruled(server, protocol, auto_execute_tools=auto, on_blocked="raise", **rules)
        ) as client,
    ):
        await client.query("25 + 17?")
        found, error = await until_failure(client)
        assert not [block for block in found if isinstance(block, ToolUseBlock)]
        assert isinstance(error, RuntimeError)
        assert str(error).startswith("Tool use blocked: ")
        assert text_of(await asked(client, "Then not.")) == "A pity."
    [_, assistant, result, prompt] = told(server.requests[1], protocol)
    assert assistant == Assistant("", (call("a", "add", a=25, b=17),))
    assert isinstance(result, Result)
    assert (result.id, result.failed) == ("a", True)
    assert prompt == User("Then not.")


async def test_what_is_allowed_is_done():
    script = [OPENAI.calls(adding("a")), OPENAI.text("42.")]
    async with (
        serving(*script) as server,
        Client(ruled(server, allowed_tools=["add"], disallowed_tools=["fail"])) as client,
    ):
        assert text_of(await asked(client, "25 + 17?")) == "42."
    assert told(server.requests[1])[-1] == Result("a", 42)


async def test_one_forbidden_call_does_not_spoil_those_beside_it(protocol: Protocol):
    script = [protocol.calls(failing("a"), adding("b")), protocol.text("ok")]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(ruled(server, protocol, disallowed_tools=["fail"])) as client,
    ):
        await asked(client, "Go.")
    assert told(server.requests[1], protocol)[2:] == [
        failed("a", Saying("blocked"), "fail"),
        Result("b", 42),
    ]


def helper(*script: Any) -> tuple[AgentFunction, ScriptedModel]:
    """Return an agent that may add, and the model that it has."""
    model = ScriptedModel(*script)
    agent = AgentFunction(
        "helper", "Helps.", user_prompt_template="Help.", uses=[add], default_model=model
    )
    return agent, model


ADDS = {"a": 1, "b": 2}


async def test_rules_and_hooks_reach_the_agents_below():
    seen: list[str] = []

    async def note(event: PreToolUseEvent) -> None:
        seen.append(event.tool_name)

    agent, model = helper(ToolUse("x", "add", ADDS), "I could not.")
    script = [OPENAI.calls(("a", "helper", "{}")), OPENAI.text("I see.")]
    async with (
        serving(*script) as server,
        Client(
            ruled(
                server,
                tools=[agent],
                disallowed_tools=["add"],
                hooks={HOOK_PRE_TOOL_USE: [note]},
            )
        ) as client,
    ):
        assert text_of(await asked(client, "Go.")) == "I see."
    [result] = [part for part in model.requests[1].transcript if isinstance(part, ToolResult)]
    assert (result.tool_use_id, result.is_error) == ("x", True)
    assert "disallowed" in result.content
    assert seen == ["helper"]


async def test_hooks_are_asked_about_the_calls_of_agents_below():
    seen: list[tuple[str, Any]] = []

    async def note(event: PreToolUseEvent) -> None:
        seen.append((event.tool_name, event.tool_input))

    agent, _ = helper(ToolUse("x", "add", ADDS), "3.")
    script = [OPENAI.calls(("a", "helper", "{}")), OPENAI.text("3.")]
    async with (
        serving(*script) as server,
        Client(ruled(server, tools=[agent], hooks={HOOK_PRE_TOOL_USE: [note]})) as client,
    ):
        await asked(client, "Go.")
    assert seen == [("helper", {}), ("add", ADDS)]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ({"disallowed_tools": ["add"]}, {"allowed_tools": ["add", "fail"]}),
        ({"allowed_tools": ["fail"]}, {}),
        ({}, {"disallowed_tools": ["add"]}),
    ],
    ids=str,
)
async def test_a_client_can_only_forbid_more_than_its_runtime(
    outer: dict[str, Any], inner: dict[str, Any]
):
    script = [OPENAI.calls(adding("a")), OPENAI.text("A pity.")]
    async with (
        serving(*script) as server,
        Runtime([add, fail], **outer),
        Client(ruled(server, **inner)) as client,
    ):
        found = await asked(client, "25 + 17?")
    [error] = [block for block in found if isinstance(block, ToolUseError)]
    assert error.error.startswith("Tool use blocked: ")


async def test_hooks_of_the_runtime_are_asked_first():
    order: list[str] = []

    async def outer(event: Any) -> None:
        order.append("runtime")

    async def inner(event: Any) -> None:
        order.append("client")

    script = [OPENAI.calls(adding("a")), OPENAI.text("42.")]
    async with (
        serving(*script) as server,
        Runtime(hooks={HOOK_PRE_TOOL_USE: [outer]}),
        Client(ruled(server, hooks={HOOK_PRE_TOOL_USE: [inner]})) as client,
    ):
        await asked(client, "25 + 17?")
    assert order == ["runtime", "client"]


async def question(runtime: Runtime) -> Question:
    async with asyncio.timeout(60):
        while not (found := runtime.questions()):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.001)
    return found[0]


@pytest.mark.parametrize(
    ("said", "made"), [("allow", ["/data"]), ("deny: not today", [])], ids=["allowed", "denied"]
)
async def test_a_hook_may_leave_it_to_a_person(said: str, made: list[str]):
    deleted: list[str] = []

    @tool("delete_file", "Delete a file.", {"path": str})
    async def delete_file(args: dict[str, Any]) -> str:
        deleted.append(args["path"])
        return "gone"

    async def approval(event: PreToolUseEvent) -> HookDecision | None:
        if event.tool_name == "delete_file":
            return HookDecision(ask=f"Delete {event.tool_input['path']}?")
        return None

    script = [OPENAI.calls(("a", "delete_file", '{"path":"/data"}')), OPENAI.text("Well.")]
    async with (
        serving(*script) as server,
        Runtime() as runtime,
        Client(ruled(server, tools=[delete_file], hooks={HOOK_PRE_TOOL_USE: [approval]})) as client,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(asked(client, "Clean up."))
        put = await question(runtime)
        assert (put.kind, put.text) == (QuestionKind.Approval, "Delete /data?")
        assert deleted == []
        runtime.answer(put.id, said)
        assert text_of(await task) == "Well."
    assert deleted == made
    last = told(server.requests[1])[-1]
    assert last == (
        Result("a", "gone") if made else failed("a", Saying("not today"), "delete_file")
    )
