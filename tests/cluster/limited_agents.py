"""Nested agents whose requests are counted: a lead asks two helpers, which any worker may run."""

from typing import Any

from treefold import AgentFunction, Budget, ToolResult, ToolUse
from treefold.testing import ScriptedRequest

HELPER = AgentFunction("helper", "Help.", user_prompt_template="Help.", remote=True)
LEAD = AgentFunction(
    "lead", "Lead.", user_prompt_template="Lead.", uses=[HELPER], budget=Budget(calls=100)
)


def reply(request: ScriptedRequest) -> Any:
    """Answer by what is shown, so that it does not matter who asks."""
    if isinstance(request.transcript[-1], ToolResult):
        return "Done."
    if request.functions:
        return [ToolUse("1", "helper", {}), ToolUse("2", "helper", {})]
    return "Helped."
