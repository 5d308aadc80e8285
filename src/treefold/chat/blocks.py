"""The data of a chat: blocks, which are streamed, and messages, which make up a history."""

from dataclasses import dataclass, field
from typing import Any, Literal

from treefold.core.usage import TokenUsage


@dataclass(slots=True)
class TextBlock:
    """A piece of the model's text.

    Example:
        >>> from treefold import TextBlock
        >>> TextBlock("Hello").type
        'text'
    """

    text: str
    type: Literal["text"] = "text"


@dataclass(slots=True)
class ThinkingBlock:
    """A piece of the model's thinking.

    Streamed blocks have no ``signature``: a client keeps the signatures itself and sends them back.
    Thinking in a message that is given to ``message_history`` is not sent.

    Some servers do not mark where thinking begins. When its end arrives, the text that was streamed
    as TextBlocks since the request turns out to be thinking. It is then streamed again, as one
    whole ThinkingBlock with ``was_text=True``.

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
    """A call that the model asks for.

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
    """A fragment of a call that the model is still writing; for ``tool_use_deltas=True``.

    ``id`` and ``name`` are what is known so far, ``arguments`` is the next fragment of JSON text.

    Example:
        >>> from treefold import ToolUseDelta
        >>> ToolUseDelta(0, "call_1", "add", '{"a":').arguments
        '{"a":'
    """

    index: int  # of the call among those of the response
    id: str
    name: str
    arguments: str
    type: Literal["tool_use_delta"] = "tool_use_delta"


@dataclass(slots=True)
class ToolUseError:
    """A call that could not be parsed, could not be made, or failed.

    The model gets the error as the result of the call, unless the call could not be parsed: then it
    is not in the history.

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
    """The result of a call.

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
    """What the model said: a single block from ``query()``, a whole response in a history.

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
    """Instructions for the model: its role and its rules.

    Example:
        >>> from treefold import SystemMessage
        >>> SystemMessage("You are brief.").role
        'system'
    """

    content: str
    role: Literal["system"] = "system"


@dataclass(slots=True, kw_only=True)
class ResultMessage:
    """What an answer took; the last message of an iteration, for ``result_message=True``.

    Attributes:
        subtype: ``"success"``, ``"interrupted"``, or ``"error"``: the exception follows.
        duration_ms: from the beginning of the first turn to the end of the last, in milliseconds.
        is_error: whether it failed.
        num_turns: the number of responses of the model.
        session_id: the name of the session, if the conversation is saved.
        total_cost_usd: the price of all requests, including those of agents that were called, in US
            dollars; None if one is not known.
        usage: the tokens of these requests.
        result: the text of the last response; None if it failed.
        content, role: empty, and ``"result"``: it may stand where an AssistantMessage does.

    Example:
        >>> import asyncio
        >>> from treefold import AgentOptions, query
        >>> from treefold.testing import ScriptedModel
        >>> async def main():
        ...     options = AgentOptions("", ScriptedModel("Four."), result_message=True)
        ...     last = [message async for message in query("2 + 2?", options)][-1]
        ...     print(last.result, last.num_turns, last.is_error)
        >>> asyncio.run(main())
        Four. 1 False
    """

    subtype: Literal["success", "interrupted", "error"]
    duration_ms: int
    is_error: bool
    num_turns: int
    session_id: str | None
    total_cost_usd: float | None
    usage: TokenUsage
    result: str | None
    content: list[Block | ToolResultBlock] = field(
        default_factory=list["Block | ToolResultBlock"], repr=False
    )
    role: Literal["result"] = field(default="result", repr=False)
    type: Literal["result"] = "result"


TypedMessage = AssistantMessage | UserMessage | SystemMessage
