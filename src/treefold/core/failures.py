"""The text that a model gets as the result of a failed call."""

import json
from typing import Any


def failed(name: str, error: str) -> str:
    """Return the text for a failed call of the function *name*."""
    return json.dumps({"error": error, "tool": name}, ensure_ascii=False)


def is_failure(content: str) -> bool:
    """Whether *content* is a text made by ``failed``."""
    try:
        data: Any = json.loads(content) if content.startswith('{"error": ') else None
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.keys() == {"error", "tool"}
