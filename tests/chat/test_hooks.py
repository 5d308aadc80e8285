"""Hooks before and after a call."""

import asyncio
from dataclasses import asdict, replace
from typing import Any, get_args

import pytest

from chat_helpers import (
    OPENAI,
    Assistant,
    Result,
    Saying,
    User,
    add,
    adding,
    answered,
    asked,
    by_name,
    call,
    fail,
    failed,
    options,
    serving,
    text_of,
    told,
    until_failure,
    written,
)
from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT,
    AgentOptions,
    AssistantMessage,
    Client,
    HookDecision,
    PostToolUseEvent,
    PreToolUseEvent,
    StopEvent,
    ToolUseBlock,
    ToolUseError,
    UserPromptSubmitEvent,
    chat,
    tool,
)
from wire.protocols import Protocol

MODES = pytest.mark.parametrize("auto", [False, True], ids=["manual", "automatic"])


def hooked(
    server: Any, protocol: Protocol | None = None, *, auto: bool = True, **hooks: Any
) -> AgentOptions:
    tools = [add, fail, writer]
    return options(server, protocol, tools=tools, auto_execute_tools=auto, hooks=by_name(**hooks))


files: list[Any] = []


@tool("file_writer", "Write a file.", {"path": str, "content": str})
async def writer(args: dict[str, Any]) -> str:
    files.append(args)
    return f"wrote {args['path']}"


@pytest.fixture(autouse=True)
def nothing_written() -> None:
    files.clear()


def writing(id: str, path: str) -> tuple[str, str, str]:
    return (id, "file_writer", f'{{"path":"{path}","content":"x"}}')


async def security_gate(event: PreToolUseEvent) -> HookDecision | None:
    if event.tool_name == "file_writer" and "/etc/" in event.tool_input.get("path", ""):
        return HookDecision(continue_=False, reason="Cannot write to system path")
    return None


async def redirect_to_sandbox(event: PreToolUseEvent) -> HookDecision | None:
    if event.tool_name == "file_writer":
        path = event.tool_input["path"]
        return HookDecision(
            modified_input={"path": f"/tmp/sandbox{path}", "content": event.tool_input["content"]},
            reason="Redirected to sandbox",
        )
    return None


def test_the_names_and_the_defaults_are_those_of_the_document():
    assert (HOOK_PRE_TOOL_USE, HOOK_POST_TOOL_USE, HOOK_USER_PROMPT_SUBMIT) == (
        "pre_tool_use",
        "post_tool_use",
        "user_prompt_submit",
    )
    empty = HookDecision()
    assert empty.continue_ is True
    assert (empty.modified_input, empty.modified_prompt, empty.reason) == (None, None, None)
    pre = PreToolUseEvent(tool_name="add", tool_input={"a": 1}, tool_use_id="c", history=[])
    assert asdict(pre) == {
        "tool_name": "add",
        "tool_input": {"a": 1},
        "tool_use_id": "c",
        "history": [],
    }


@MODES
async def test_hooks_are_told_all_there_is_to_know_in_both_modes(*, auto: bool):
    seen: list[Any] = []

    async def note(event: Any) -> None:
        seen.append(event)

    script = [OPENAI.calls(adding("a")), OPENAI.text("42.")]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, pre=[note], post=[note], prompt=[note])) as client,
    ):
        assert text_of(await answered(client, "25 + 17?")) == "42."
    prompt, pre, post = seen  # and the prompt only once: a continuation is no prompt
    assert prompt == UserPromptSubmitEvent(prompt="25 + 17?", history=[])
    asking = Assistant("", (call("a", "add", a=25, b=17),))
    assert isinstance(pre, PreToolUseEvent)
    assert (pre.tool_name, pre.tool_input, pre.tool_use_id) == ("add", {"a": 25, "b": 17}, "a")
    assert written(pre.history) in ([User("25 + 17?")], [User("25 + 17?"), asking])
    assert isinstance(post, PostToolUseEvent)
    assert (post.tool_name, post.tool_input, post.tool_use_id) == ("add", {"a": 25, "b": 17}, "a")
    assert post.tool_result == 42
    assert written(post.history) == [User("25 + 17?"), asking, Result("a", 42)]


async def test_hooks_run_inline_on_the_loop_of_the_client():
    loops: list[Any] = []

    async def note(event: Any) -> None:
        loops.append(asyncio.get_running_loop())

    script = [OPENAI.calls(adding("a")), OPENAI.text("42.")]
    async with (
        serving(*script) as server,
        Client(hooked(server, pre=[note], post=[note], prompt=[note])) as client,
    ):
        await answered(client, "25 + 17?")
    assert loops == [asyncio.get_running_loop()] * 3


@MODES
async def test_a_hook_that_returns_none_allows(*, auto: bool):
    async def allow(event: Any) -> None:
        return None

    script = [OPENAI.calls(writing("a", "/tmp/x")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, pre=[security_gate, allow], prompt=[allow])) as client,
    ):
        assert text_of(await answered(client, "Write.")) == "ok"
    assert files == [{"path": "/tmp/x", "content": "x"}]


@MODES
async def test_a_blocked_call_raises_and_the_model_is_told_with_the_next_prompt(
    protocol: Protocol, *, auto: bool
):
    script = [
        protocol.calls(writing("a", "/etc/passwd"), writing("b", "/tmp/y")),
        protocol.text("Sorry."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(hooked(server, protocol, auto=auto, pre=[security_gate])) as client,
    ):
        await client.query("Write.")
        found, error = await until_failure(client)
        assert [one for one in found if isinstance(one, ToolUseBlock | ToolUseError)] == []
        assert isinstance(error, RuntimeError)
        assert str(error) == "Tool use blocked: Cannot write to system path"
        assert text_of(await asked(client, "Then do not.")) == "Sorry."
    [user, assistant, first, second, prompt] = told(server.requests[1], protocol)
    assert user == User("Write.")
    assert isinstance(assistant, Assistant)
    assert [name for _, name, _ in assistant.calls] == ["file_writer", "file_writer"]
    assert first == Result("a", Saying("Cannot write to system path"), failed=True)
    assert second == Result("b", Saying("no result"), failed=True)
    assert prompt == User("Then do not.")
    assert files == []


@MODES
async def test_calls_before_a_blocked_one_are_handed_out_and_made(*, auto: bool):
    script = [OPENAI.calls(writing("a", "/tmp/y"), writing("b", "/etc/passwd"))]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, pre=[security_gate])) as client,
    ):
        await client.query("Write.")
        found, error = await until_failure(client)
    made = {"path": "/tmp/y", "content": "x"}
    assert found == [ToolUseBlock("a", "file_writer", made)]
    assert str(error) == "Tool use blocked: Cannot write to system path"
    assert files == ([made] if auto else [])


async def test_a_hook_that_gives_no_reason_is_quoted_as_a_hook():
    async def forbid(event: Any) -> HookDecision:
        return HookDecision(continue_=False)

    async with serving(OPENAI.calls(adding("a"))) as server:
        async with Client(hooked(server, pre=[forbid])) as client:
            await client.query("25 + 17?")
            _, error = await until_failure(client)
        async with Client(hooked(server, prompt=[forbid])) as client:
            with pytest.raises(RuntimeError, match="^Prompt blocked: a hook forbade it$"):
                await client.query("25 + 17?")
    assert str(error) == "Tool use blocked: a hook forbade it"


@MODES
async def test_a_blocked_call_is_told_to_the_model_if_the_options_say_so(
    protocol: Protocol, *, auto: bool
):
    script = [
        protocol.calls(writing("a", "/etc/passwd"), writing("b", "/tmp/y")),
        protocol.text("Sorry."),
    ]
    async with (
        serving(*script, protocol=protocol) as server,
        Client(
            replace(hooked(server, protocol, auto=auto, pre=[security_gate]), on_blocked="tell")
        ) as client,
    ):
        found = await answered(client, "Write.")
    calls = [block for block in found if isinstance(block, ToolUseBlock)]
    assert calls == [ToolUseBlock("b", "file_writer", {"path": "/tmp/y", "content": "x"})]
    [error] = [block for block in found if isinstance(block, ToolUseError)]
    assert error.error == "Tool use blocked: Cannot write to system path"
    assert text_of(found) == "Sorry."
    assert told(server.requests[1], protocol)[2:] == [
        failed("a", Saying("Cannot write to system path"), "file_writer"),
        Result("b", "wrote /tmp/y"),
    ]
    assert files == [{"path": "/tmp/y", "content": "x"}]


def test_what_happens_to_a_blocked_call_is_one_of_two_things():
    with pytest.raises(ValueError, match="on_blocked must be 'raise' or 'tell', got 'pause'"):
        AgentOptions("", "qwen3", on_blocked="pause")  # pyright: ignore


@MODES
async def test_a_hook_may_change_the_input(*, auto: bool):
    script = [OPENAI.calls(writing("a", "/home/x")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, pre=[redirect_to_sandbox])) as client,
    ):
        found = await answered(client, "Write.")
    instead = {"path": "/tmp/sandbox/home/x", "content": "x"}
    assert [block for block in found if isinstance(block, ToolUseBlock)] == [
        ToolUseBlock("a", "file_writer", instead)
    ]
    assert files == [instead]
    assert told(server.requests[1])[-1] == Result("a", "wrote /tmp/sandbox/home/x")
    assert written(client.history) == [
        User("Write."),
        Assistant("", (call("a", "file_writer", **instead),)),
        Result("a", "wrote /tmp/sandbox/home/x"),
        Assistant("ok"),
    ]
    assert client.messages[1] == AssistantMessage([ToolUseBlock("a", "file_writer", instead)])


@MODES
async def test_hooks_are_asked_about_a_tool_that_is_not_there(*, auto: bool):
    asked_about: list[Any] = []
    posted: list[Any] = []

    async def redirect(event: PreToolUseEvent) -> HookDecision:
        asked_about.append((event.tool_name, event.tool_input, event.tool_use_id))
        return HookDecision(modified_input={"n": 2})

    async def note(event: PostToolUseEvent) -> None:
        posted.append((event.tool_name, event.tool_input))

    script = [OPENAI.calls(("a", "serach", '{"n":1}')), OPENAI.text("Sorry.")]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, pre=[redirect], post=[note])) as client,
    ):
        found = await asked(client, "Go.")
        if not auto:
            await client.add_tool_result("a", "nothing")
            await asked(client, "")
    calls = [block for block in found if isinstance(block, ToolUseBlock | ToolUseError)]
    error = ToolUseError("Tool 'serach' not found in registry", raw_data="{'n': 2}")
    assert calls == [ToolUseBlock("a", "serach", {"n": 2}), *([error] if auto else [])]
    assert asked_about == [("serach", {"n": 1}, "a")]
    assert posted == [("serach", {"n": 2})]
    assert written(client.history)[1] == Assistant("", (call("a", "serach", n=2),))


@MODES
async def test_a_hook_may_block_a_tool_that_is_not_there(*, auto: bool):
    async def block(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(continue_=False, reason="unheard of")

    async with (
        serving(OPENAI.calls(("a", "serach", "{}"))) as server,
        Client(hooked(server, auto=auto, pre=[block])) as client,
    ):
        await client.query("Go.")
        found, error = await until_failure(client)
    assert (found, str(error)) == ([], "Tool use blocked: unheard of")


async def test_a_tool_that_is_not_there_is_put_to_no_person():
    async def ask(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(ask="May it?")

    script = [OPENAI.calls(("a", "serach", "{}")), OPENAI.text("Sorry.")]
    async with (
        serving(*script) as server,
        Client(hooked(server, pre=[ask])) as client,
    ):
        assert text_of(await asked(client, "Go.")) == "Sorry."


async def test_a_tool_that_is_not_there_is_unknown_rather_than_forbidden():
    script = [OPENAI.calls(("a", "serach", "{}")), OPENAI.text("Sorry.")]
    async with (
        serving(*script) as server,
        Client(replace(hooked(server), allowed_tools=["add"])) as client,
    ):
        found = await asked(client, "Go.")
    [error] = [block for block in found if isinstance(block, ToolUseError)]
    assert error.error == "Tool 'serach' not found in registry"
    assert text_of(found) == "Sorry."


async def test_what_a_hook_does_to_the_input_it_was_given_changes_nothing():
    async def vandal(event: PreToolUseEvent) -> None:
        event.tool_input.clear()
        event.history.clear()

    script = [OPENAI.calls(adding("a")), OPENAI.text("ok")]
    async with serving(*script) as server, Client(hooked(server, pre=[vandal])) as client:
        await answered(client, "25 + 17?")
    assert told(server.requests[1]) == [
        User("25 + 17?"),
        Assistant("", (call("a", "add", a=25, b=17),)),
        Result("a", 42),
    ]


@MODES
async def test_the_first_decision_wins_and_the_rest_is_not_asked(*, auto: bool):
    order: list[str] = []

    async def first(event: Any) -> None:
        order.append("first")

    async def second(event: Any) -> HookDecision:
        order.append("second")
        return HookDecision()  # which allows

    async def third(event: Any) -> HookDecision:
        order.append("third")
        return HookDecision(continue_=False, reason="never asked")

    script = [OPENAI.calls(adding("a")), OPENAI.text("ok")]
    async with (
        serving(*script) as server,
        Client(hooked(server, auto=auto, pre=[first, second, third])) as client,
    ):
        assert text_of(await answered(client, "25 + 17?")) == "ok"
    assert order == ["first", "second"]


async def test_what_comes_after_a_call_only_observes():
    async def forbid(event: PostToolUseEvent) -> HookDecision:
        return HookDecision(continue_=False, reason="too late")

    script = [OPENAI.calls(adding("a")), OPENAI.text("42.")]
    async with serving(*script) as server, Client(hooked(server, post=[forbid])) as client:
        assert text_of(await answered(client, "25 + 17?")) == "42."
    assert told(server.requests[1])[-1] == Result("a", 42)


async def test_an_audit_log_has_every_call():
    log: list[dict[str, Any]] = []

    async def audit(event: PostToolUseEvent) -> None:
        log.append({"tool": event.tool_name, "in": event.tool_input, "out": event.tool_result})

    script = [OPENAI.calls(adding("a", 1, 2), writing("b", "/tmp/z")), OPENAI.text("ok")]
    async with serving(*script) as server, Client(hooked(server, post=[audit])) as client:
        await answered(client, "Go.")
    assert log == [
        {"tool": "add", "in": {"a": 1, "b": 2}, "out": 3},
        {"tool": "file_writer", "in": {"path": "/tmp/z", "content": "x"}, "out": "wrote /tmp/z"},
    ]


async def test_a_result_without_a_name_is_told_with_the_input_of_its_call():
    seen: list[PostToolUseEvent] = []

    async def note(event: PostToolUseEvent) -> None:
        seen.append(event)

    async with (
        serving(OPENAI.calls(adding("a"))) as server,
        Client(hooked(server, auto=False, post=[note])) as client,
    ):
        await asked(client, "25 + 17?")
        await client.add_tool_result("a", {"sum": 42})
    [event] = seen
    assert (event.tool_input, event.tool_result) == ({"a": 25, "b": 17}, {"sum": 42})


async def test_hooks_may_be_annotated_by_the_documented_names():
    seen: list[chat.HookEvent] = []

    async def note(event: chat.HookEvent) -> HookDecision | None:
        seen.append(event)
        return None

    handlers: list[chat.HookHandler] = [note]
    hooks: dict[str, Any] = {chat.HOOK_USER_PROMPT_SUBMIT: handlers}
    async with (
        serving(OPENAI.text("Hello.")) as server,
        Client(options(server, hooks=hooks)) as client,
    ):
        assert text_of(await asked(client, "Hi")) == "Hello."
    assert [isinstance(event, chat.HookEvent) for event in seen] == [True]
    kinds = {PreToolUseEvent, PostToolUseEvent, UserPromptSubmitEvent, StopEvent}
    assert {*get_args(chat.HookEvent)} == kinds
