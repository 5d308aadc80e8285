"""What becomes of the calls that a model asks for."""

from typing import Any

from agent_scripts import run_agent
from ramify import (
    HOOK_PRE_TOOL_USE,
    AgentFunction,
    CodeFunction,
    HookDecision,
    PreToolUseEvent,
    RunContext,
    ToolUse,
)
from ramify.testing import ScriptedModel


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
