"""What a tool gives back, as a value for code and as text for a model; and the other way round."""

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
from treefold.mcp.output import Output
from treefold.models.characters import whole
from treefold.toolbox.shell.output import cut_middle

_NOTHING: Final = "[it returned nothing]"
_UNITS: Final = ("bytes", "KB", "MB", "GB")


def value_of(result: CallToolResult, max_chars: int | None, *, wrapped: bool = False) -> Any:
    """Return what code is given: the structured content if there is any, otherwise text.

    What is longer than *max_chars* as text is cut, and is text then. If the tool's output schema
    says that its result is *wrapped*, it is unwrapped.
    """
    value: Any = result.structured_content
    if value is None:
        return _cut(text_of(result.content), max_chars)
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


def fault_of(result: CallToolResult, max_chars: int | None) -> str:
    """Return why a call failed."""
    return _cut(text_of(result.content), max_chars) or "it failed, and does not say why"


def text_of(blocks: Sequence[ContentBlock]) -> str:
    """Return *blocks* as a model may read them: what is no text is described."""
    return "\n".join(map(_text, blocks))


def result_of(value: Any, output: Output | None) -> CallToolResult:
    """Return what a client is given: text, and structured content that fits *output*.

    Without a declared output, an object is structured content as it is.

    Raises:
        InvalidValueError: *value* does not fit *output*.
    """
    text = whole(as_text(value)) if value is not None else _NOTHING
    found = CallToolResult(content=[TextContent(text=text)])
    if output is not None:
        found.structured_content = output.structured(value)
    elif not isinstance(value, str):
        try:
            plain = to_plain(value, "the result")
        except SerializationError:
            return found
        if isinstance(plain, dict) and whole(text) == text:
            found.structured_content = plain
    return found


def failed_result(message: str) -> CallToolResult:
    """Return what a client is given of a call that failed."""
    return CallToolResult(content=[TextContent(text=whole(message))], is_error=True)


def _text(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return whole(block.text)
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.type}: {block.mime_type}, {_size(block.data)}, not shown]"
    if isinstance(block, ResourceLink):
        size = None if block.size is None else _in_units(block.size)
        about = [block.mime_type, size, block.description]
        return f"[resource {block.name}: {', '.join([block.uri, *filter(None, about)])}]"
    inner = block.resource
    if isinstance(inner, TextResourceContents):
        return f"[resource {inner.uri}: {inner.mime_type or 'text'}]\n{whole(inner.text)}"
    assert isinstance(inner, BlobResourceContents)
    kind = inner.mime_type or "application/octet-stream"
    return f"[resource {inner.uri}: {kind}, {_size(inner.blob)}, not shown]"


def _size(data: str) -> str:
    """Return the size of what is base64."""
    padding = len(data) - len(data.rstrip("="))
    return _in_units(max(0, len(data) * 3 // 4 - padding))


def _in_units(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size /= 1000
        unit += 1
    return f"{size:.3g} {_UNITS[unit]}" if unit else f"{size:.0f} {_UNITS[0]}"


def _cut(text: str, max_chars: int | None) -> str:
    return text if max_chars is None else cut_middle(text, max_chars)
