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


def messages_of(parts: Iterable[TranscriptPart], asked: Iterable[ToolUse] = ()) -> list[Message]:
    """Return *parts* as messages; *asked* are the calls before them that they may answer.

    Thinking is left out, and so are calls that could not be understood, with what was said of them.
    """
    messages: list[Message] = []
    names = {call.id: call.name for call in asked if call.fault is None}
    for part in parts:
        match part:
            case UserText():
                messages.append({"role": "user", "content": part.text})
            case ModelText():
                _assistant(messages)["content"] += part.text
            case ToolUse(fault=None):
                names[part.id] = part.name
                _assistant(messages).setdefault("tool_calls", []).append(_call(part))
            case ToolResult() if part.tool_use_id in names:
                result = {"role": "tool", "tool_call_id": part.tool_use_id}
                named = {"name": names[part.tool_use_id], "content": part.content}
                messages.append(result | named)
            case ThinkingPart() | ToolUse() | ToolResult():
                pass
            case _:
                raise TypeError(f"no message for {part!r}")
    return messages


def _assistant(messages: list[Message]) -> Message:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _call(call: ToolUse) -> Message:
    arguments = json.dumps(dict(call.args), default=str, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
