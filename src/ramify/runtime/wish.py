"""What other processes ask of whoever drives a journal: one JSON object to a message."""

import json
from typing import Any, cast

from ramify.core.errors import InvalidValueError
from ramify.core.frames import shortened


def read_wish(body: str) -> dict[str, Any]:
    """Return what a message asks for.

    Raises:
        InvalidValueError: it is none of ours.
    """
    try:
        wish: Any = json.loads(body)
    except (ValueError, RecursionError):
        wish = None
    if not isinstance(wish, dict):
        raise InvalidValueError(f"{shortened(body, 100)} is no message of ours")
    return cast("dict[str, Any]", wish)
