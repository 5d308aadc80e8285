"""What a model is told of a call that has no value."""

import json
from typing import Any


def failed(name: str, error: str) -> str:
    """Return the result of a call of *name* that came to nothing."""
    return json.dumps({"error": error, "tool": name}, ensure_ascii=False)


def is_failure(content: str) -> bool:
    """Whether *content* is such a result."""
    try:
        said: Any = json.loads(content) if content.startswith('{"error": ') else None
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.keys() == {"error", "tool"}
