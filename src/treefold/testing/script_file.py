"""Scripts of a ``ScriptedModel`` as JSON: what ``--model scripted:FILE`` reads."""

import json
from pathlib import Path
from typing import Any, Final, cast

from treefold.core.errors import InvalidValueError
from treefold.core.transcript import ModelText, ThinkingPart, ToolUse, TranscriptPart
from treefold.core.truncation import truncated_repr
from treefold.testing.scripted import Reply, ScriptedFailure

_FORMS: Final = (
    'a text, {"text": TEXT}, {"thinking": TEXT}, {"call": NAME, "args": {...}}, a list of these, or'
    ' {"status": NUMBER, "message": TEXT}'
)


def read_script(path: Path) -> list[Reply]:
    """Return the replies in a JSON file, which has a list of them.

    A reply is a text, a part, or a list of parts. A part is ``{"text": ...}``, ``{"thinking":
    ...}`` or ``{"call": name, "args": {...}}``. A reply that fails is ``{"status": 429, "message":
    ...}``.

    Raises:
        InvalidValueError: the file cannot be read, or is not such a list.
    """
    try:
        replies: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidValueError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(replies, list):
        raise InvalidValueError(f"{path} must be a JSON list of replies; each is {_FORMS}")
    numbered = enumerate(cast("list[Any]", replies), 1)
    return [_reply(reply, number, path) for number, reply in numbered]


def _reply(reply: Any, number: int, path: Path) -> Reply:
    match reply:
        case {"status": int(status), "message": str(message), **rest} if not rest:
            return ScriptedFailure(status, message)
        case {"status": int(status), **rest} if not rest:
            return ScriptedFailure(status)
        case _:
            given = cast("list[Any]", reply) if isinstance(reply, list) else [reply]
    parts: list[TranscriptPart] = []
    for place, one in enumerate(given, 1):
        # The ids of the calls in one conversation differ.
        part = _part(one, f"call_{number}_{place}")
        if part is None:
            got = truncated_repr(reply)
            raise InvalidValueError(f"{path}: reply {number} must be {_FORMS}; got {got}")
        parts.append(part)
    return parts


def _part(part: Any, id: str) -> TranscriptPart | None:
    """Return a part of a reply; None if it is none."""
    match part:
        case str(text):
            return ModelText(text)
        case {"text": str(text), **rest} if not rest:
            return ModelText(text)
        case {"thinking": str(text), **rest} if not rest:
            return ThinkingPart(text)
        case {"call": str(name), "args": args, **rest} if not rest and isinstance(args, dict):
            return ToolUse(id, name, cast("dict[str, Any]", args))
        case {"call": str(name), **rest} if not rest:
            return ToolUse(id, name)
        case _:
            return None
