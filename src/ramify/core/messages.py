"""A conversation as plain messages, in the form that most servers use."""

import json
from collections.abc import Iterable
from typing import Any

from ramify.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)

Message = dict[str, Any]


class MessageWriter:
    """Writes down parts of one conversation, in order; knows the calls that wait for results.

    Thinking is left out, and so are calls that could not be understood, with what was said of them.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # of the calls that have no result yet, by id

    def write(self, parts: Iterable[TranscriptPart]) -> list[Message]:
        """Return *parts* as messages of their own."""
        messages: list[Message] = []
        for part in parts:
            self._add(part, messages)
        return messages

    def _add(self, part: TranscriptPart, messages: list[Message]) -> None:
        match part:
            case UserText():
                messages.append({"role": "user", "content": part.text})
            case ModelText():
                _assistant(messages)["content"] += part.text
            case ToolUse(fault=None):
                self._names[part.id] = part.name
                arguments = json.dumps(dict(part.args), default=str, ensure_ascii=False)
                function = {"name": part.name, "arguments": arguments}
                call = {"id": part.id, "type": "function", "function": function}
                _assistant(messages).setdefault("tool_calls", []).append(call)
            case ToolResult() if part.tool_use_id in self._names:
                name = self._names.pop(part.tool_use_id)
                result = {"role": "tool", "tool_call_id": part.tool_use_id, "name": name}
                messages.append(result | {"content": part.content})
            case ThinkingPart() | ToolUse() | ToolResult():
                pass
            case _:
                raise TypeError(f"no message for {part!r}")


def _assistant(messages: list[Message]) -> Message:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]
