"""What a chat is made of: the pieces that are streamed, and the messages of a history."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(slots=True)
class TextBlock:
    """A piece of what the model says.

    Example:
        >>> from treefold import TextBlock
        >>> TextBlock("Hello").type
        'text'
    """

    text: str
    type: Literal["text"] = "text"


@dataclass(slots=True)
class ThinkingBlock:
    """A piece of what the model thinks.

    ``signature`` is for histories that are written by hand: what is streamed has none.

    Some servers leave out where thinking begins. What came as TextBlocks since the request turns
    out to be thinking then, and comes again as one of these, whole, with ``was_text``.

    Example:
        >>> from treefold import ThinkingBlock
        >>> ThinkingBlock("Let me see").thinking
        'Let me see'
    """

    thinking: str
    signature: str | None = None
    was_text: bool = False
    type: Literal["thinking"] = "thinking"


@dataclass(slots=True)
class ToolUseBlock:
    """The model asks for a call.

    Example:
        >>> from treefold import ToolUseBlock
        >>> ToolUseBlock("call_1", "add", {"a": 1, "b": 2}).input["b"]
        2
    """

    id: str
    name: str
    input: dict[str, Any]
    type: Literal["tool_use"] = "tool_use"


@dataclass(slots=True)
class ToolUseDelta:
    """A little more of a call that the model is asking for, if ``tool_use_deltas`` wants them.

    ``id`` and ``name`` are as far as known, ``arguments`` the next fragment of the JSON text.

    Example:
        >>> from treefold import ToolUseDelta
        >>> ToolUseDelta(0, "call_1", "add", '{"a":').arguments
        '{"a":'
    """

    index: int  # which of the calls of this response
    id: str
    name: str
    arguments: str
    type: Literal["tool_use_delta"] = "tool_use_delta"


@dataclass(slots=True)
class ToolUseError:
    """A call that could not be understood, could not be made, or failed; the model is told, too.

    Example:
        >>> from treefold import ToolUseError
        >>> ToolUseError("Tool 'ad' not found in registry", "{'a': 1}").error
        "Tool 'ad' not found in registry"
    """

    error: str
    raw_data: str | None = None
    type: Literal["tool_use_error"] = "tool_use_error"


@dataclass(slots=True)
class ToolResultBlock:
    """What came of a call.

    Example:
        >>> from treefold import ToolResultBlock
        >>> ToolResultBlock("call_1", {"sum": 3}).is_error
        False
    """

    tool_use_id: str
    content: str | dict[str, Any] | list[Any]
    is_error: bool = False
    type: Literal["tool_result"] = "tool_result"


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolUseDelta | ToolUseError


@dataclass(slots=True)
class AssistantMessage:
    """What the model said: by ``query()``, piece by piece; in a history, whole.

    Example:
        >>> from treefold import AssistantMessage, TextBlock
        >>> AssistantMessage([TextBlock("Hello")]).role
        'assistant'
    """

    content: list[Block | ToolResultBlock]
    role: Literal["assistant"] = "assistant"


@dataclass(slots=True)
class UserMessage:
    """What a person said, or the results of calls.

    Example:
        >>> from treefold import UserMessage
        >>> UserMessage("Hello").content
        'Hello'
    """

    content: str | list[TextBlock | ToolResultBlock]
    role: Literal["user"] = "user"


@dataclass(slots=True)
class SystemMessage:
    """Who the model is, and what rules it has.

    Example:
        >>> from treefold import SystemMessage
        >>> SystemMessage("You are brief.").role
        'system'
    """

    content: str
    role: Literal["system"] = "system"


TypedMessage = AssistantMessage | UserMessage | SystemMessage
