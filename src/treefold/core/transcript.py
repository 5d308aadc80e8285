"""The parts of a transcript, which are the same for all providers.

A transcript is derived from the exchanges. Only the exchanges, which hold the provider's own data,
are sent back to the provider.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from treefold.core.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True)
class TranscriptPart:
    """One part of a conversation.

    Example:
        >>> from treefold import ModelText, TranscriptPart, UserText
        >>> parts: list[TranscriptPart] = [UserText("2 + 2?"), ModelText("4")]
        >>> [type(part).__name__ for part in parts]
        ['UserText', 'ModelText']
    """


@lazy_dataclass(frozen=True)
class UserText(TranscriptPart):
    """Text of a person or a prompt.

    Example:
        >>> from treefold import UserText
        >>> UserText("hello").text
        'hello'
    """

    text: str


@lazy_dataclass(frozen=True)
class ModelText(TranscriptPart):
    """Text of the model.

    Example:
        >>> from treefold import ModelText
        >>> ModelText("hello").text
        'hello'
    """

    text: str


ThinkingSignature: TypeAlias = str  # by which a provider verifies that thinking is its own


@lazy_dataclass(frozen=True)
class ThinkingPart(TranscriptPart):
    """Thinking of the model. Redacted thinking has no text: only its provider can read it.

    Example:
        >>> from treefold import ThinkingPart
        >>> ThinkingPart("add them", signature="EqQB...").redacted
        False
    """

    text: str
    signature: ThinkingSignature | None = None
    redacted: bool = False


@lazy_dataclass(frozen=True)
class ToolUse(TranscriptPart):
    """A call that the model asks for.

    Attributes:
        id: the id that the model gave to the call.
        name: the name of the function.
        args: its arguments.
        fault: why the call cannot be made, if it cannot.
        written: what the model wrote instead of a JSON object of arguments, if that is the fault.

    Example:
        >>> from treefold import ToolUse
        >>> ToolUse("call_1", "add", {"a": 1, "b": 2}).args["b"]
        2
    """

    id: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fault: str | None = None
    written: str | None = field(default=None, compare=False)

    @classmethod
    def unreadable(cls, id: str, name: str, written: str) -> "ToolUse":
        """Return a call whose arguments, as *written* by the model, are not a JSON object."""
        return cls(id, name, {}, f"the arguments are not a JSON object: {written}", written)


@lazy_dataclass(frozen=True)
class ToolResult(TranscriptPart):
    """The result of a call, as the model reads it.

    Example:
        >>> from treefold import ToolResult
        >>> ToolResult("call_1", "3").is_error
        False
    """

    tool_use_id: str
    content: str
    is_error: bool = False
