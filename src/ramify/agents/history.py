"""A conversation as plain messages, for hooks to read."""

import json
from typing import Any

from ramify.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)
from ramify.runtime.agent_node import AgentNode


class History:
    """What was said so far, in the form that most servers use; each part is read once."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._messages: list[dict[str, Any]] = []
        self._read = 0

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages, oldest first."""
        said = self._node.said
        for part in said[self._read :]:
            self._take(part)
        self._read = len(said)
        return list(self._messages)

    def _take(self, part: TranscriptPart) -> None:
        match part:
            case UserText():
                self._messages.append({"role": "user", "content": part.text})
            case ModelText():
                self._assistant()["content"] += part.text
            case ToolUse():
                arguments = json.dumps(dict(part.args), default=str)
                function = {"name": part.name, "arguments": arguments}
                call = {"id": part.id, "type": "function", "function": function}
                self._assistant().setdefault("tool_calls", []).append(call)
            case ToolResult():
                result = {"role": "tool", "tool_call_id": part.tool_use_id}
                self._messages.append(result | {"content": part.content})
            case ThinkingPart():
                pass
            case _:
                raise TypeError(f"no message for {part!r}")

    def _assistant(self) -> dict[str, Any]:
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": ""})
        return self._messages[-1]
