"""What a journal knows a call by, among the calls of its parent.

Each is one of three kinds: the name that the caller gave it, the response of a model that asked for
it, or else what is called with which arguments. They cannot be taken for one another.
"""

from collections.abc import Mapping
from typing import Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.value_codec import digest

_NAMED: Final = "="
_USED: Final = "/"


def named(name: str) -> str:
    """Return the key of a call that its caller has given a name."""
    if not isinstance(name, str) or not name:
        raise InvalidValueError(f"the key of a call is some text, not {name!r}")
    return f"{_NAMED}{name}"


def name_in(key: str) -> str:
    """Return the name that its caller has given a call with this key, or nothing."""
    return key.removeprefix(_NAMED) if key.startswith(_NAMED) else ""


def used(response: int, tool_use_id: str) -> str:
    """Return the key of a call that a model asked for in that response."""
    return f"{_USED}{response}/{tool_use_id}"


def is_past(key: str, responses: int) -> bool:
    """Whether a model asked for the call in an earlier response than the last of so many."""
    return key.startswith(_USED) and not key.startswith(f"{_USED}{responses}/")


def of_content(function: str, model: Any, args: Mapping[str, Any]) -> str:
    """Return the key of a call that is known by what is called."""
    by = "" if model is None else f"@{getattr(model, 'name', model)}"
    return f"{function}{by}({digest(dict(args))})"
