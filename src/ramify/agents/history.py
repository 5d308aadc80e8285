"""A conversation as plain messages, for hooks to read."""

import json
from typing import Any

from ramify.core.transcript import ModelText, ThinkingPart, ToolResult, ToolUse, UserText
from ramify.runtime.agent_node import AgentNode


def messages(node: AgentNode) -> list[dict[str, Any]]:
    """Return what was said so far, in the form that most servers use."""
    found: list[dict[str, Any]] = []
    for part in node.get_transcript():
        match part:
            case UserText():
                found.append({"role": "user", "content": part.text})
            case ModelText():
                _assistant(found)["content"] += part.text
            case ToolUse():
                arguments = json.dumps(dict(part.args), default=str)
                function = {"name": part.name, "arguments": arguments}
                call = {"id": part.id, "type": "function", "function": function}
                _assistant(found).setdefault("tool_calls", []).append(call)
            case ToolResult():
                found.append({
                    "role": "tool",
                    "tool_call_id": part.tool_use_id,
                    "content": part.content,
                })
            case ThinkingPart():
                pass
            case _:
                raise TypeError(f"no message for {part!r}")
    return found


def _assistant(found: list[dict[str, Any]]) -> dict[str, Any]:
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    return found[-1]
