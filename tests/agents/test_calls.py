"""What becomes of the calls that a model asks for."""

from typing import Any

from agent_scripts import ended, run_agent, until
from treefold import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CodeFunction,
    HookDecision,
    PostToolUseEvent,
    PreToolUseEvent,
    RunContext,
    Runtime,
    ToolUse,
)
from treefold.testing import ScriptedModel


def worker(*uses: Any, **options: Any) -> AgentFunction:
    return AgentFunction("worker", "Work.", user_prompt_template="Work.", uses=uses, **options)


async def test_a_hook_changes_no_arguments_by_changing_what_it_was_shown():
    given: list[list[str]] = []

    async def clean(ctx: RunContext, files: list[str]) -> None:
        given.append(files)

    async def curious(event: PreToolUseEvent) -> HookDecision | None:
        event.tool_input["files"].append("everything")

    model = ScriptedModel(ToolUse("1", "clean", {"files": ["a"]}), "done")
    agent = worker(CodeFunction(callable=clean))
    node = await run_agent(agent, models=model, hooks={HOOK_PRE_TOOL_USE: [curious]})
    assert (node.outputs, given) == ("done", [["a"]])


async def test_an_agent_may_return_its_result_whatever_it_may_call():
    model = ScriptedModel(ToolUse("1", "return_result", {"result": 4}))
    node = await run_agent(worker(returns=int), models=model, allowed_tools=[])
    assert node.outputs == 4


async def test_a_hook_may_take_all_arguments_away():
    count = CodeFunction(name="count", callable=lambda ctx, n=1: n)

    async def bare(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(modified_input={})

    async def listen(event: PostToolUseEvent) -> None:
        told.append((event.tool_input, event.tool_result))

    told: list[tuple[dict[str, Any], Any]] = []
    model = ScriptedModel(ToolUse("1", "count", {"n": 1000}), "done")
    hooks = {HOOK_PRE_TOOL_USE: [bare], HOOK_POST_TOOL_USE: [listen]}
    node = await run_agent(worker(count), models=model, hooks=hooks)
    assert (node.outputs, told) == ("done", [({}, 1)])


async def test_a_hook_is_told_what_the_model_is_told_of_a_failure():
    told: list[Any] = []

    async def fail(ctx: RunContext) -> None:
        raise LookupError("no such thing")

    async def listen(event: PostToolUseEvent) -> None:
        told.append(event.tool_result)

    model = ScriptedModel(ToolUse("1", "fail"), "done")
    agent = worker(CodeFunction(callable=fail))
    await run_agent(agent, models=model, hooks={HOOK_POST_TOOL_USE: [listen]})
    assert told == ["LookupError: no such thing"]


async def test_a_call_that_is_made_again_has_the_arguments_that_a_hook_gave_it():
    given: list[int] = []

    async def shaky(ctx: RunContext, n: int) -> str:
        given.append(n)
        if len(given) == 1:
            raise LookupError("not yet")
        return "there"

    async def fewer(event: PreToolUseEvent) -> HookDecision:
        return HookDecision(modified_input={"n": 2})

    model = ScriptedModel(ToolUse("1", "shaky", {"n": 1000}), "done")
    agent = worker(CodeFunction(callable=shaky))
    hooks = {HOOK_PRE_TOOL_USE: [fewer]}
    async with Runtime([agent], models=model, hooks=hooks, on_tool_error="pause") as runtime:
        node = runtime.invoke(agent)
        (question,) = await until(runtime.questions)
        runtime.answer(question.id, "resume")
        await ended(node)
    assert (node.outputs, given) == ("done", [2, 2])
