"""Pauses, questions to people, hooks and permissions in trees of agents."""

import asyncio
from typing import Any

import pytest

from agent_scripts import (
    StagedModel,
    asked,
    children_of,
    ended,
    question_of,
    run,
    run_agent,
    seen,
    told,
    until,
    worker,
)
from support import settle
from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT,
    CancellationException,
    CodeFunction,
    DeniedError,
    HookDecision,
    ModelProviderException,
    Node,
    NodeState,
    PostToolUseEvent,
    PreToolUseEvent,
    RunContext,
    Runtime,
    ToolUse,
    TreefoldError,
    UserPromptSubmitEvent,
    registries,
    tool,
)
from treefold.testing import ScriptedFailure, ScriptedModel, ScriptedRequest
from treefold.toolbox import raise_exception

with registries():

    @tool
    async def look(at: str = "x") -> str:
        """Look at something."""
        return f"{at} is fine"


class Gate:
    """A tool that waits inside."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.go_on = asyncio.Event()

        @tool
        async def gate() -> str:
            """Wait."""
            self.inside.set()
            await self.go_on.wait()
            return "through"

        self.tool = gate


# --- pausing


async def test_a_paused_agent_stops_before_its_next_request_and_goes_on_when_resumed():
    gate = Gate()
    boss = worker("boss", gate.tool)
    model = ScriptedModel([ToolUse("a", "gate")], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        runtime.pause(node.id, reason="lunch")
        gate.go_on.set()
        view = await seen(runtime, node, lambda view: view.state is NodeState.Paused)
        assert node.state is NodeState.Paused
        assert view.status
        await settle()
        assert len(model.requests) == 1
        question = await question_of(runtime)
        assert question.kind == "paused"
        assert question.node_id == node.id
        assert "lunch" in question.text
        assert set(question.choices) >= {"resume", "cancel"}
        assert runtime.resume(node.id) is node
        assert await node == "done"
        assert runtime.questions() == []


async def test_a_request_that_is_under_way_ends_before_a_pause():
    model = StagedModel(ScriptedModel([ToolUse("a", "look")], "done"), held=True)
    boss = worker("boss", look)
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await until(lambda: model.in_flight)
        runtime.pause(node.id)
        model.gate.set()
        await until(lambda: node.state is NodeState.Paused)
        assert len(model.script.requests) == 1
        assert all(child.state is NodeState.Waiting for child in children_of(node))
        runtime.resume(node.id)
        assert await node == "done"


async def test_a_child_of_paused_code_may_not_start_and_stays_waiting():
    go_on, inside = asyncio.Event(), asyncio.Event()

    async def top(ctx: RunContext) -> str:
        inside.set()
        await go_on.wait()
        return await ctx.invoke(look, {"at": "y"})

    code = CodeFunction(callable=top, uses=[look])
    async with Runtime([code]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(code)
        await inside.wait()
        runtime.pause(node.id)
        go_on.set()
        await until(lambda: children_of(node))
        await settle()
        [child] = children_of(node)
        assert child.state is NodeState.Waiting
        runtime.resume(node.id)
        assert await node == "y is fine"
        assert child.state is NodeState.Success


async def test_pausing_a_task_stops_every_call_below_it():
    gate = Gate()
    helper = worker("helper", gate.tool)
    boss = worker("boss", helper)
    model = ScriptedModel([ToolUse("a", "helper")], [ToolUse("b", "gate")], "helped", "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        runtime.pause(node.id)
        [child] = children_of(node)
        gate.go_on.set()
        await until(lambda: child.state is NodeState.Paused)
        await settle()
        assert len(model.requests) == 2
        runtime.resume(node.id)
        assert await node == "done"


async def test_other_trees_go_on_while_one_is_paused():
    gate = Gate()
    boss, other = worker("boss", gate.tool), worker("other")
    model = ScriptedModel([ToolUse("a", "gate")], "other done", "done")
    async with Runtime([boss, other], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        runtime.pause(node.id)
        gate.go_on.set()
        await until(lambda: node.state is NodeState.Paused)
        assert await runtime.invoke(other) == "other done"
        runtime.resume(node.id)
        assert await node == "done"


@pytest.mark.parametrize("answer", ["resume", "cancel"])
async def test_a_pause_is_a_question_that_can_be_answered(answer: str):
    gate = Gate()
    boss = worker("boss", gate.tool)
    model = ScriptedModel([ToolUse("a", "gate")], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        runtime.pause(node.id)
        gate.go_on.set()
        await until(lambda: node.state is NodeState.Paused)
        runtime.answer((await question_of(runtime)).id, answer)
        await ended(node)
        assert runtime.questions() == []
    expected = NodeState.Success if answer == "resume" else NodeState.Canceled
    assert node.state is expected


async def test_a_paused_task_can_be_cancelled_and_its_question_is_gone():
    gate = Gate()
    boss = worker("boss", gate.tool)
    model = ScriptedModel([ToolUse("a", "gate")], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        runtime.pause(node.id)
        gate.go_on.set()
        await until(lambda: node.state is NodeState.Paused)
        runtime.cancel(node.id, "enough")
        with pytest.raises(CancellationException, match="enough"):
            await node
        assert runtime.questions() == []


async def test_what_is_not_paused_cannot_be_resumed():
    gate = Gate()
    boss = worker("boss", gate.tool)
    model = ScriptedModel([ToolUse("a", "gate")], "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        with pytest.raises(TreefoldError, match="paused"):
            runtime.resume(node.id)
        gate.go_on.set()
        await node


async def test_a_batch_that_was_paused_in_the_middle_is_answered_as_a_whole():
    gate = Gate()
    boss = worker("boss", gate.tool, look)
    batch = [ToolUse("a", "gate"), ToolUse("b", "look"), ToolUse("c", "look")]
    model = ScriptedModel(batch, "done")
    async with Runtime([boss], models=model) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await gate.inside.wait()
        runtime.pause(node.id)
        gate.go_on.set()
        await until(lambda: node.state is NodeState.Paused)
        runtime.resume(node.id)
        assert await node == "done"
    assert [result.tool_use_id for result in told(model.requests[1])] == ["a", "b", "c"]
    assert not any(result.is_error for result in told(model.requests[1]))


# --- what a failure pauses


async def test_an_agent_whose_provider_fails_may_be_paused_until_somebody_resumes():
    boss = worker("boss", look)
    model = ScriptedModel([ToolUse("a", "look")], ScriptedFailure(503, "it is down"), "done")
    options: Any = {"models": model, "on_provider_failure": "pause"}
    async with Runtime([boss], **options) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        await until(lambda: node.state is NodeState.Paused)
        question = await question_of(runtime)
        assert (question.kind, question.node_id) == ("paused", node.id)
        assert "it is down" in question.text
        assert runtime.resume(node.id) is node
        assert await node == "done"
    assert model.requests[1].transcript == model.requests[2].transcript
    assert len(children_of(node)) == 1


async def test_a_sub_agent_whose_provider_fails_is_the_one_that_is_paused():
    flaky_model = ScriptedModel(ScriptedFailure(503, "it is down"), "helped")
    helper = worker("helper", default_model=flaky_model)
    boss = worker("boss", helper)
    model = ScriptedModel([ToolUse("a", "helper")], "done")
    options: Any = {"models": model, "on_provider_failure": "pause"}
    async with Runtime([boss], **options) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        question = await question_of(runtime)
        [child] = children_of(node)
        assert question.node_id == child.id
        assert child.state is NodeState.Paused
        runtime.answer(question.id, "resume")
        assert await node == "done"
    assert told(model.requests[1])[0].content == "helped"


async def test_a_provider_that_fails_again_pauses_again():
    boss = worker("boss")
    model = ScriptedModel(ScriptedFailure(503), ScriptedFailure(503), "done")
    options: Any = {"models": model, "on_provider_failure": "pause"}
    async with Runtime([boss], **options) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        first = await question_of(runtime)
        runtime.answer(first.id, "resume")
        second = await until(
            lambda: next((q for q in runtime.questions() if q.id != first.id), None)
        )
        assert second is not None
        runtime.answer(second.id, "resume")
        assert await node == "done"


async def test_without_more_a_failing_provider_is_an_error():
    node = await run_agent(worker("boss"), models=ScriptedModel(ScriptedFailure(503)))
    assert node.state is NodeState.Error
    assert isinstance(node.exception, ModelProviderException)


def flaky(failures: int) -> Any:
    left = [LookupError(f"failure {number}") for number in range(failures)]

    @tool
    async def shaky(n: int = 1) -> str:
        """Work now and then."""
        if left:
            raise left.pop()
        return "worked"

    return shaky


@pytest.mark.parametrize("answer", ["resume", "report", "cancel"])
async def test_an_agent_may_be_paused_when_a_function_that_it_called_fails(answer: str):
    boss = worker("boss", flaky(1))
    model = ScriptedModel([ToolUse("a", "shaky")], "done")
    async with (
        Runtime([boss], models=model, on_tool_error="pause") as runtime,
        asyncio.timeout(60),
    ):
        node = runtime.invoke(boss)
        await until(lambda: node.state is NodeState.Paused)
        question = await question_of(runtime)
        assert (question.kind, question.node_id) == ("paused", node.id)
        assert "failure 0" in question.text
        assert set(question.choices) >= {"resume", "report", "cancel"}
        assert len(model.requests) == 1
        runtime.answer(question.id, answer)
        await ended(node)
    if answer == "cancel":
        assert node.state is NodeState.Canceled
        return
    assert node.outputs == "done"
    [result] = told(model.requests[1])
    if answer == "resume":
        assert (result.content, result.is_error) == ("worked", False)
    else:
        assert (result.content, result.is_error) == ("LookupError: failure 0", True)


@pytest.mark.parametrize("wrong", ["arguments", "denied", "sub-agent", "unknown"])
async def test_what_the_model_itself_can_mend_is_always_reported(wrong: str):
    helper = worker("helper", raise_exception)
    boss = worker("boss", flaky(0), helper)
    script: dict[str, list[Any]] = {
        "arguments": [[ToolUse("a", "shaky", {"n": "many"})]],
        "denied": [[ToolUse("a", "shaky")]],
        "sub-agent": [
            [ToolUse("a", "helper")],
            [ToolUse("b", "raise_exception", {"msg": "no"})],
        ],
        "unknown": [[ToolUse("a", "shakky")]],
    }
    options: Any = {"disallowed_tools": ["shaky"]} if wrong == "denied" else {}
    model = ScriptedModel(*script[wrong], "done")
    node = await run_agent(boss, models=model, on_tool_error="pause", **options)
    assert node.outputs == "done"
    assert told(model.requests[-1])[0].is_error


# --- questions


async def test_any_function_can_ask_a_person_and_is_paused_while_it_waits():
    async def top(ctx: RunContext) -> str:
        return await ctx.ask("Which colour?")

    code = CodeFunction(callable=top)
    async with Runtime([code]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(code)
        question = await question_of(runtime)
        assert isinstance(question.id, str)
        assert (question.kind, question.node_id) == ("human", node.id)
        assert (question.text, question.choices) == ("Which colour?", ())
        assert node.state is NodeState.Paused
        runtime.answer(question.id, "blue")
        assert await node == "blue"
        assert runtime.questions() == []


async def test_an_answer_is_one_of_the_choices_if_there_are_any():
    async def top(ctx: RunContext) -> str:
        return await ctx.ask("Which colour?", choices=("red", "blue"))

    code = CodeFunction(callable=top)
    async with Runtime([code]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(code)
        question = await question_of(runtime)
        assert question.choices == ("red", "blue")
        with pytest.raises(ValueError, match="red") as caught:
            runtime.answer(question.id, "green")
        assert "blue" in str(caught.value)
        assert [one.id for one in runtime.questions()] == [question.id]  # it stays open
        runtime.answer(question.id, "blue")
        assert await node == "blue"


async def test_a_question_that_is_settled_or_unknown_cannot_be_answered():
    async def top(ctx: RunContext) -> str:
        return await ctx.ask("Which colour?")

    code = CodeFunction(callable=top)
    async with Runtime([code]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(code)
        question = await question_of(runtime)
        with pytest.raises(KeyError):
            runtime.answer("no such question", "x")
        runtime.answer(question.id, "blue")
        with pytest.raises(KeyError):
            runtime.answer(question.id, "red")
        assert await node == "blue"


async def test_questions_are_listed_at_any_depth_of_any_tree_and_answered_one_by_one():
    @tool
    async def ask(ctx: RunContext, what: str) -> str:
        return await ctx.ask(what)

    helper = worker("helper", ask)
    boss = worker("boss", helper)

    def reply(request: ScriptedRequest) -> Any:
        results = told(request)
        if results:
            return results[-1].content
        if request.functions == ("ask",):
            return [ToolUse("b", "ask", {"what": "?"})]
        return [ToolUse("a", "helper")]

    async with Runtime([boss], models=ScriptedModel(reply)) as runtime, asyncio.timeout(60):
        nodes = [runtime.invoke(boss) for _ in range(3)]
        await until(lambda: len(runtime.questions()) == 3)
        for question in runtime.questions():
            [root] = [node for node in nodes if question.node_id in _ids(runtime, node)]
            runtime.answer(question.id, f"for {root.path}")
        assert [await node for node in nodes] == ["for 1", "for 2", "for 3"]


def _ids(runtime: Runtime, node: Node) -> set[int]:
    return {one.id for one in runtime.get_subtree(node.id)}


def test_a_question_is_answered_from_another_thread():
    async def asking(ctx: RunContext) -> str:
        return await ctx.ask("Which colour?")

    code = CodeFunction(callable=asking)
    with Runtime([code]) as runtime:
        node = runtime.invoke(code)
        for _ in runtime.watch(node, timeout=60):
            if questions := runtime.questions():
                runtime.answer(questions[0].id, "blue")
                break
        assert node.result(60) == "blue"


async def test_a_question_of_a_cancelled_call_is_gone():
    async def top(ctx: RunContext) -> str:
        return await ctx.ask("Which colour?")

    code = CodeFunction(callable=top)
    async with Runtime([code]) as runtime, asyncio.timeout(60):
        node = runtime.invoke(code)
        await question_of(runtime)
        node.cancel("enough")
        await ended(node)
        assert runtime.questions() == []


# --- decision hooks


async def test_a_hook_sees_each_call_that_a_model_makes_before_and_after():
    events: list[Any] = []

    async def note(event: Any) -> None:
        events.append(event)

    boss = worker("boss", look)
    model = ScriptedModel([ToolUse("a", "look", {"at": "y"})], "done")
    hooks = {HOOK_PRE_TOOL_USE: [note], HOOK_POST_TOOL_USE: [note]}
    await run_agent(boss, models=model, hooks=hooks)
    before, after = events
    assert isinstance(before, PreToolUseEvent)
    assert isinstance(after, PostToolUseEvent)
    for event in events:
        assert event.tool_name == "look"
        assert event.tool_input == {"at": "y"}
        assert event.tool_use_id == "a"
        assert event.history
    assert after.tool_result == "y is fine"


async def test_hooks_apply_at_any_depth_and_not_to_what_code_calls():
    names: list[str] = []

    async def note(event: PreToolUseEvent) -> None:
        names.append(event.tool_name)

    async def direct(ctx: RunContext) -> Any:
        return await ctx.invoke(look)

    code = CodeFunction(callable=direct, uses=[look])
    helper = worker("helper", code)
    boss = worker("boss", helper)
    model = ScriptedModel([ToolUse("a", "helper")], [ToolUse("b", "direct")], "helped", "done")
    await run_agent(boss, models=model, hooks={HOOK_PRE_TOOL_USE: [note]})
    assert names == ["helper", "direct"]


async def test_a_denied_call_is_shown_to_the_model_and_is_in_the_tree():
    ran: list[str] = []

    @tool
    async def delete(path: str) -> None:
        ran.append(path)

    async def guard(event: PreToolUseEvent) -> HookDecision | None:
        if event.tool_input["path"].startswith("/etc"):
            return HookDecision(continue_=False, reason="that is the system's")
        return None

    batch = [
        ToolUse("a", "delete", {"path": "/etc/passwd"}),
        ToolUse("b", "delete", {"path": "/tmp/x"}),
    ]
    model = ScriptedModel(batch, "done")
    node = await run_agent(worker("boss", delete), models=model, hooks={HOOK_PRE_TOOL_USE: [guard]})
    assert node.outputs == "done"
    assert ran == ["/tmp/x"]
    denied, fine = told(model.requests[1])
    assert denied.is_error
    assert "that is the system's" in denied.content
    assert not fine.is_error
    first, second = children_of(node)
    assert first.state is NodeState.Error
    assert isinstance(first.exception, DeniedError)
    assert isinstance(first.exception, TreefoldError)
    assert second.state is NodeState.Success


async def test_a_hook_may_change_the_arguments():
    async def sandbox(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(modified_input={"at": "sandbox/" + event.tool_input["at"]})

    model = ScriptedModel([ToolUse("a", "look", {"at": "y"})], "done")
    await run_agent(worker("boss", look), models=model, hooks={HOOK_PRE_TOOL_USE: [sandbox]})
    assert told(model.requests[1])[0].content == "sandbox/y is fine"


async def test_the_first_hook_that_decides_is_the_one_that_counts():
    asked_hooks: list[str] = []

    def hook(name: str, decision: HookDecision | None) -> Any:
        async def decide(event: PreToolUseEvent) -> HookDecision | None:
            asked_hooks.append(name)
            return decision

        return decide

    hooks = [
        hook("a", None),
        hook("b", HookDecision(modified_input={"at": "b"})),
        hook("c", HookDecision(continue_=False)),
    ]
    model = ScriptedModel([ToolUse("a", "look")], "done")
    await run_agent(worker("boss", look), models=model, hooks={HOOK_PRE_TOOL_USE: hooks})
    assert asked_hooks == ["a", "b"]
    assert told(model.requests[1])[0].content == "b is fine"


async def test_a_hook_that_raises_fails_the_agents_call():
    async def broken(event: PreToolUseEvent) -> None:
        raise ZeroDivisionError("a bug in the hook")

    model = ScriptedModel([ToolUse("a", "look")], "never")
    node = await run_agent(worker("boss", look), models=model, hooks={HOOK_PRE_TOOL_USE: [broken]})
    assert node.state is NodeState.Error
    assert "a bug in the hook" in str(node.exception)
    assert len(model.requests) == 1


async def test_a_hook_that_is_not_async_is_told_to_be():
    def plain(event: PreToolUseEvent) -> HookDecision:
        return HookDecision()

    hooks: Any = {HOOK_PRE_TOOL_USE: [plain]}
    model = ScriptedModel([ToolUse("a", "look")], "never")
    node = await run_agent(worker("boss", look), models=model, hooks=hooks)
    assert "a decision hook is an async function: <function" in str(node.exception)


async def test_a_hook_may_change_the_prompt_of_an_agent():
    async def add(event: UserPromptSubmitEvent) -> HookDecision:
        return HookDecision(modified_prompt=f"{event.prompt} Be brief.")

    model = ScriptedModel("done")
    await run_agent(worker("boss"), models=model, hooks={HOOK_USER_PROMPT_SUBMIT: [add]})
    assert asked(model.requests[0]) == "I am boss. Be brief."


async def test_a_hook_may_block_an_agent_before_its_first_request():
    async def block(event: UserPromptSubmitEvent) -> HookDecision:
        return HookDecision(continue_=False, reason="not on Sundays")

    model = ScriptedModel("never")
    node = await run_agent(worker("boss"), models=model, hooks={HOOK_USER_PROMPT_SUBMIT: [block]})
    assert isinstance(node.exception, DeniedError)
    assert "not on Sundays" in str(node.exception)
    assert model.requests == []


# --- approval


async def approved(answer: str, **options: Any) -> tuple[Node, ScriptedModel, list[str]]:
    """Have a person decide about a call by *answer*; return what came of it."""
    ran: list[str] = []

    @tool
    async def delete(path: str) -> str:
        ran.append(path)
        return "deleted"

    async def ask(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(ask=f"Delete {event.tool_input['path']}?")

    boss = worker("boss", delete)
    model = ScriptedModel([ToolUse("a", "delete", {"path": "/x"})], "done")
    hooks: Any = {HOOK_PRE_TOOL_USE: [ask]}
    async with Runtime([boss], models=model, hooks=hooks) as runtime, asyncio.timeout(60):
        node = runtime.invoke(boss)
        question = await question_of(runtime)
        [child] = children_of(node)
        assert (question.kind, question.node_id) == ("approval", child.id)
        assert "Delete /x?" in question.text
        assert child.state is NodeState.Paused
        assert ran == []
        with pytest.raises(ValueError, match="allow"):
            runtime.answer(question.id, "perhaps")
        assert runtime.questions() == [question]
        runtime.answer(question.id, answer, **options)
        await ended(node)
        assert runtime.questions() == []
    return node, model, ran


async def test_a_call_sent_for_approval_is_made_when_it_is_allowed():
    node, model, ran = await approved("allow")
    assert node.outputs == "done"
    assert ran == ["/x"]
    assert told(model.requests[1])[0].content == "deleted"


@pytest.mark.parametrize("answer", ["deny", "deny: not that one"])
async def test_a_call_sent_for_approval_may_be_denied_with_a_reason(answer: str):
    node, model, ran = await approved(answer)
    assert node.outputs == "done"
    assert ran == []
    [result] = told(model.requests[1])
    assert result.is_error
    assert ("not that one" in result.content) == (answer != "deny")
    assert isinstance(children_of(node)[0].exception, DeniedError)


async def test_a_call_sent_for_approval_may_be_allowed_with_edited_arguments():
    node, model, ran = await approved("", args={"path": "/tmp/x"})
    assert node.outputs == "done"
    assert ran == ["/tmp/x"]
    assert told(model.requests[1])[0].content == "deleted"


# --- permissions


async def test_a_tool_that_is_not_allowed_is_denied_at_every_depth():
    ran: list[str] = []

    @tool
    async def write(text: str) -> str:
        ran.append(text)
        return "written"

    helper = worker("helper", look, write)
    boss = worker("boss", helper)

    def reply(request: ScriptedRequest) -> Any:
        if told(request):
            return "done"
        if "helper" in request.functions:
            return [ToolUse("a", "helper")]
        return [ToolUse("b", "write", {"text": "x"}), ToolUse("c", "look")]

    permissions: list[Any] = [
        {"disallowed_tools": ["write"]},
        {"allowed_tools": ["helper", "look"]},
    ]
    for options in permissions:
        model = ScriptedModel(reply)
        node = await run_agent(boss, models=model, **options)
        assert node.outputs == "done"
        denied, fine = told(model.requests[2])
        assert denied.is_error
        assert "write" in denied.content
        assert not fine.is_error
    assert ran == []


async def test_a_tool_that_is_both_allowed_and_disallowed_is_denied():
    model = ScriptedModel([ToolUse("a", "look")], "done")
    await run(worker("boss", look), models=model, allowed_tools=["look"], disallowed_tools=["look"])
    assert told(model.requests[1])[0].is_error


async def test_permissions_are_for_models_and_not_for_the_program():
    async with Runtime([look], disallowed_tools=["look"]) as runtime, asyncio.timeout(60):
        assert await runtime.invoke(look) == "x is fine"
