"""Keys, which identify a call in a journal among the calls of its parent.

There are four kinds of key: a name given by the caller, the response in which a model asked for
the call, the response that the call prepares, or else the function and its arguments. Keys of
different kinds are never equal. The key of a tree that continues a failed one names that tree.
"""

from collections.abc import Mapping
from typing import Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.value_codec import digest

_NAMED: Final = "="
_USED: Final = "/"
_PREPARES: Final = "<"
_CONTINUES: Final = "+"


def named(name: str) -> str:
    """Return the key of a call to which its caller gave the name *name*."""
    if not isinstance(name, str) or not name:
        raise InvalidValueError(f"the key of a call must be a non-empty str, got {name!r}")
    return f"{_NAMED}{name}"


def name_in(key: str) -> str:
    """Return the name that the caller gave to the call with this key, or ``""``."""
    return key.removeprefix(_NAMED) if key.startswith(_NAMED) else ""


def of_continuation(tree: int) -> str:
    """Return the key of the tree that continues a failed one: there is at most one."""
    return f"{_CONTINUES}{tree}"


def is_continuation(key: str) -> bool:
    """Whether *key* is that of a tree which continues a failed one."""
    return key.startswith(_CONTINUES)


def of_tool_use(response: int, tool_use_id: str) -> str:
    """Return the key of a call that a model asked for in the response with this number."""
    return f"{_USED}{response}/{tool_use_id}"


def of_preparation(response: int, name: str) -> str:
    """Return the key of a call that an agent makes before the response with this number."""
    return f"{_PREPARES}{response}/{name}"


def is_preparation(key: str) -> bool:
    """Whether *key* is that of a call which an agent makes itself, before a response."""
    return key.startswith(_PREPARES)


def is_past(key: str, responses: int, *, is_answered: bool = False) -> bool:
    """Whether an agent with so many *responses* does not make the call again.

    A model asked for it in a response before the last one, or in that one if its calls are
    answered; or it prepared a response that has arrived.
    """
    if key.startswith(_USED):
        return _response_in(key) < responses + is_answered
    return key.startswith(_PREPARES) and _response_in(key) <= responses


def _response_in(key: str) -> int:
    return int(key[1 : key.index("/", 1)])


def of_content(function: str, model: Any, args: Mapping[str, Any]) -> str:
    """Return the key of a call that is identified by its function, model and arguments."""
    by = "" if model is None else f"@{getattr(model, 'name', model)}"
    return f"{function}{by}({of_arguments(args)})"


def of_arguments(args: Mapping[str, Any]) -> str:
    """Return what identifies arguments: the same in every process."""
    return digest(dict(args))
