"""Save a conversation as a file: JSON to continue it, or Markdown to read it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from treefold.core.errors import InvalidValueError
from treefold.core.messages import Message
from treefold.views.text import printable, readable

_MARKDOWN: Final = {".md", ".markdown"}
_SPEAKERS: Final = {"user": "You", "assistant": "Model", "system": "System", "tool": "Result"}


def default_name(now: datetime) -> str:
    """Return the name of the file if none is given."""
    return f"chat-{now:%Y-%m-%d-%H%M%S}.json"


def write_chat(path: Path, messages: Sequence[Message], *, model: str, overwrite: bool) -> None:
    """Write *messages* in the format that the suffix of *path* stands for.

    Raises:
        FileExistsError: the file exists, and may not be overwritten.
        InvalidValueError: the suffix is unknown.
        OSError: the file cannot be written.
    """
    if path.suffix.lower() in _MARKDOWN:
        text = "\n\n".join(_markdown(messages, model)) + "\n"
    elif path.suffix.lower() == ".json":
        text = json.dumps({"model": model, "messages": messages}, ensure_ascii=False, indent=1)
    else:
        raise InvalidValueError(f"{path}: a conversation is saved as .json or .md")
    with path.open("w" if overwrite else "x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def read_chat(path: Path) -> list[Message]:
    """Return the messages that ``write_chat`` wrote as JSON.

    Raises:
        InvalidValueError: it is a file of another kind.
        OSError: the file cannot be read.
    """
    try:
        messages: Any = json.loads(path.read_text("utf-8"))["messages"]
        if all(isinstance(one["role"], str) for one in messages):
            return cast("list[Message]", messages)
    except (ValueError, TypeError, KeyError):
        pass  # it is JSON of another shape, or not JSON
    raise InvalidValueError(f"{path} is not a conversation that /save wrote as .json")


def spoken(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield each speaker and text; a call of the model has the speaker ``Call``."""
    for message in messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        if text:
            role = str(message["role"])
            yield _SPEAKERS.get(role, role), text
        for call in message.get("tool_calls") or ():
            function = cast("Mapping[str, Any]", call["function"])
            yield "Call", f"{function['name']}({function['arguments']})"


def _markdown(messages: Sequence[Message], model: str) -> Iterator[str]:
    yield f"# Conversation with {printable(model)}"
    for speaker, text in spoken(messages):
        yield f"**{printable(speaker)}**"
        yield _fenced(readable(text)) if speaker in {"Call", "Result"} else readable(text)


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
