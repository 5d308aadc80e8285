"""Turns the parts of a transcript into blocks."""

from treefold.chat.blocks import Block, TextBlock, ThinkingBlock, ToolUseBlock, ToolUseError
from treefold.core.transcript import ModelText, ThinkingPart, ToolUse, TranscriptPart
from treefold.models.json_text import json_object_error


def block_of(part: TranscriptPart) -> Block | None:
    """Return *part* as a block; None if it is not from the model."""
    match part:
        case ModelText():
            return TextBlock(part.text)
        case ThinkingPart():
            return ThinkingBlock(part.text)
        case ToolUse(fault=None):
            return ToolUseBlock(part.id, part.name, dict(part.args))
        case ToolUse():
            return ToolUseError(fault_of(part) or "", part.written)
        case _:
            return None


def fault_of(call: ToolUse) -> str | None:
    """Return why *call* cannot be made; None if it can."""
    if (written := call.written) is not None:
        return f"Invalid JSON: {json_object_error(written)}"
    return call.fault
