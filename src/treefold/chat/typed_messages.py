"""Converts messages between typed objects and the plain dicts of a history."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from treefold.chat.blocks import (
    AssistantMessage,
    Block,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    TypedMessage,
    UserMessage,
)
from treefold.core.errors import InvalidValueError
from treefold.core.failures import is_failure
from treefold.core.messages import Message, text_of
from treefold.models.json_text import parse_json_object


def typed(messages: Sequence[Message]) -> list[TypedMessage]:
    """Return *messages* as objects; consecutive results become one UserMessage."""
    found: list[TypedMessage] = []
    results: list[TextBlock | ToolResultBlock] = []
    for message in messages:
        role, content = message.get("role"), text_of(message)
        if role == "tool":
            if not results:
                found.append(UserMessage(results))
            id = str(message.get("tool_call_id") or "")
            results.append(ToolResultBlock(id, content, is_error=is_failure(content)))
            continue
        results = []
        match role:
            case "assistant":
                found.append(AssistantMessage(_blocks(message, content)))
            case "system" | "developer":
                found.append(SystemMessage(content))
            case _:
                found.append(UserMessage(content))
    return found


def _blocks(message: Message, text: str) -> list[Block | ToolResultBlock]:
    blocks: list[Block | ToolResultBlock] = [TextBlock(text)] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        # A model may have written anything as arguments.
        arguments = parse_json_object(function["arguments"]) or {}
        blocks.append(ToolUseBlock(call["id"], function["name"], arguments))
    return blocks


def plain(message: object) -> list[Message]:
    """Return *message*, an object or a dict, as one or more dicts.

    Raises:
        InvalidValueError: it is neither.
    """
    match message:
        case Mapping():
            return [dict(cast("Mapping[str, Any]", message))]
        case SystemMessage() | UserMessage(content=str()):
            return [{"role": message.role, "content": message.content}]
        case UserMessage():
            return [_user_message(block) for block in message.content]
        case AssistantMessage():
            return _assistant_messages(message.content)
        case _:
            raise InvalidValueError(
                "a history is made of messages, {'role': ..., 'content': ...} or UserMessage(...)"
                f" and its like, which {message!r} is not"
            )


def _user_message(block: object) -> Message:
    match block:
        case TextBlock():
            return {"role": "user", "content": block.text}
        case ToolResultBlock():
            return _result_message(block)
        case _:
            raise InvalidValueError(f"a UserMessage has texts and results, not {block!r}")


def _result_message(block: ToolResultBlock) -> Message:
    given = block.content
    content = given if isinstance(given, str) else json.dumps(given, default=str)
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _assistant_messages(blocks: Sequence[Block | ToolResultBlock]) -> list[Message]:
    """Return *blocks* as messages; results end one, and what follows them begins another."""
    found: list[Message] = []
    said: list[Block] = []
    for block in blocks:
        if not isinstance(block, ToolResultBlock):
            said.append(block)
            continue
        if said:
            found.append(_assistant_message(said))
            said = []
        found.append(_result_message(block))
    if said or not found:
        found.append(_assistant_message(said))
    return found


def _assistant_message(blocks: Sequence[Block]) -> Message:
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    said: Message = {"role": "assistant", "content": "".join(texts)}
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": json.dumps(block.input, default=str)},
        }
        for block in blocks
        if isinstance(block, ToolUseBlock)
    ]
    return said | {"tool_calls": calls} if calls else said
