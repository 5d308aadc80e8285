"""The parts of a transcript, which are the same for all providers.

A transcript is derived from the exchanges. Only the exchanges, which hold the provider's own data,
are sent back to the provider.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from msgspec import field

from treefold.core.fact import HIDDEN, UNCOMPARED, Fact


class UserText(Fact, frozen=True, tag=True, repr_omit_defaults=True):
    """Text of a person or a prompt.

    Attributes:
        message: the id of the message, if a person said it while the agent ran.

    Example:
        >>> from treefold import UserText
        >>> UserText("hello").text
        'hello'
    """

    text: str
    message: Annotated[str, HIDDEN] = ""


class ModelText(Fact, frozen=True, tag=True):
    """Text of the model.

    Example:
        >>> from treefold import ModelText
        >>> ModelText("hello").text
        'hello'
    """

    text: str


ThinkingSignature: TypeAlias = str  # by which a provider verifies that thinking is its own


class ThinkingPart(Fact, frozen=True, tag=True):
    """Thinking of the model. Redacted thinking has no text: only its provider can read it.

    Example:
        >>> from treefold import ThinkingPart
        >>> ThinkingPart("add them", signature="EqQB...").redacted
        False
    """

    text: str
    signature: ThinkingSignature | None = None
    redacted: bool = False


class ToolUse(Fact, frozen=True, tag=True):
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
    written: Annotated[str | None, UNCOMPARED] = None

    @classmethod
    def unreadable(cls, id: str, name: str, written: str) -> "ToolUse":
        """Return a call whose arguments, as *written* by the model, are not a JSON object."""
        return cls(id, name, {}, f"the arguments are not a JSON object: {written}", written)


class ToolResult(Fact, frozen=True, tag=True):
    """The result of a call, as the model reads it.

    Example:
        >>> from treefold import ToolResult
        >>> ToolResult("call_1", "3").is_error
        False
    """

    tool_use_id: str
    content: str
    is_error: bool = False


# One part of a conversation: ``parts: list[TranscriptPart]``.
TranscriptPart: TypeAlias = UserText | ModelText | ThinkingPart | ToolUse | ToolResult
