"""Convert the result of a tool to a value for code or text for a model, and back."""

from collections.abc import Sequence
from typing import Any, Final

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from treefold.agents.prompts import as_text
from treefold.core.errors import SerializationError
from treefold.core.plain import to_plain
from treefold.core.truncation import truncate_middle
from treefold.mcp.output import OutputSchema
from treefold.models.json_text import join_surrogates

_NOTHING: Final = "[it returned nothing]"
_UNITS: Final = ("bytes", "KB", "MB", "GB")


def to_value(result: CallToolResult, max_chars: int | None, *, wrapped: bool = False) -> Any:
    """Return the value for code: the structured content if there is any, otherwise the text.

    A value that is longer than *max_chars* as text becomes that text, cut. A result that is
    *wrapped*, by the output schema of the tool, is unwrapped.
    """
    value: Any = result.structured_content
    if value is None:
        return _cut(to_text(result.content), max_chars)
    if wrapped:
        value = _unwrapped(value)
    if max_chars is not None and len(text := as_text(value)) > max_chars:
        return _cut(text, max_chars)
    return value


def _unwrapped(value: Any) -> Any:
    match value:
        case {"result": inner, **rest} if not rest:
            return inner
        case _:
            return value


def error_text(result: CallToolResult, max_chars: int | None) -> str:
    """Return the message of a failed call."""
    return _cut(to_text(result.content), max_chars) or "the tool failed without a message"


def to_text(blocks: Sequence[ContentBlock]) -> str:
    """Return *blocks* as text for a model; content of other types is described."""
    return "\n".join(map(_text, blocks))


def to_result(value: Any, output: OutputSchema | None) -> CallToolResult:
    """Return *value* as a result for a client: text, and structured content that fits *output*.

    Without an output schema, an object is also structured content, unchanged.

    Raises:
        InvalidValueError: *value* does not fit *output*.
    """
    text = join_surrogates(as_text(value)) if value is not None else _NOTHING
    found = CallToolResult(content=[TextContent(text=text)])
    if output is not None:
        found.structured_content = output.structured(value)
    elif not isinstance(value, str):
        try:
            plain = to_plain(value, "the result")
        except SerializationError:
            return found
        if isinstance(plain, dict) and join_surrogates(text) == text:
            found.structured_content = plain
    return found


def to_error_result(message: str) -> CallToolResult:
    """Return the result of a failed call for a client."""
    return CallToolResult(content=[TextContent(text=join_surrogates(message))], is_error=True)


def _text(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return join_surrogates(block.text)
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.type}: {block.mime_type}, {_size(block.data)}, not shown]"
    if isinstance(block, ResourceLink):
        size = None if block.size is None else _in_units(block.size)
        about = [block.mime_type, size, block.description]
        return f"[resource {block.name}: {', '.join([block.uri, *filter(None, about)])}]"
    inner = block.resource
    if isinstance(inner, TextResourceContents):
        return f"[resource {inner.uri}: {inner.mime_type or 'text'}]\n{join_surrogates(inner.text)}"
    assert isinstance(inner, BlobResourceContents)
    kind = inner.mime_type or "application/octet-stream"
    return f"[resource {inner.uri}: {kind}, {_size(inner.blob)}, not shown]"


def _size(data: str) -> str:
    """Return the size of base64 *data*, once decoded."""
    padding = len(data) - len(data.rstrip("="))
    return _in_units(max(0, len(data) * 3 // 4 - padding))


def _in_units(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size /= 1000
        unit += 1
    return f"{size:.3g} {_UNITS[unit]}" if unit else f"{size:.0f} {_UNITS[0]}"


def _cut(text: str, max_chars: int | None) -> str:
    return text if max_chars is None else truncate_middle(text, max_chars)
