"""Values as they are written on a command line."""

import json
from typing import Any, cast

from treefold.core.errors import InvalidValueError


def read_value(text: str) -> Any:
    """Return what *text* says as JSON, or *text* itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_arguments(text: str, option: str) -> dict[str, Any]:
    """Return the arguments in a JSON object, as it was given to *option*.

    Raises:
        InvalidValueError: it is something else.
    """
    found = read_value(text)
    if not isinstance(found, dict):
        example = '{"name": "Ada"}'
        raise InvalidValueError(f"{option} takes a JSON object such as '{example}', not {text!r}")
    return cast("dict[str, Any]", found)
