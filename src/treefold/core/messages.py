"""A conversation as plain messages, in the format of OpenAI and compatible servers."""

import json
from collections.abc import Iterable
from typing import Any, cast

from treefold.core.errors import InvalidValueError
from treefold.core.transcript import (
    ModelText,
    ThinkingPart,
    ToolResult,
    ToolUse,
    TranscriptPart,
    UserText,
)

Message = dict[str, Any]


def messages_of(parts: Iterable[TranscriptPart], asked: Iterable[ToolUse] = ()) -> list[Message]:
    """Return *parts* as messages; *asked* are earlier calls to which they may contain results.

    Thinking is left out, and so are calls that could not be parsed, with their results.
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


def text_of(message: Message) -> str:
    """Return the text of a message.

    Raises:
        InvalidValueError: its content is not text.
    """
    content: Any = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = cast("list[Any]", content) if isinstance(content, list) else [content]
    texts = [_part(part) for part in parts]
    if any(text is None for text in texts):
        raise InvalidValueError(f"the content of a message is text, not {content!r}")
    return "\n".join(text for text in texts if text)


def _part(part: Any) -> str | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return None
