"""Insert arguments into prompts, and have functions return them.

Only ``{name}`` of a declared argument is replaced; other braces are left as they are.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from treefold.core.errors import DefinitionError
from treefold.core.from_file import FromFile
from treefold.core.function import RunContext
from treefold.core.plain import to_json

# Returns a system prompt for one call.
SystemFunction: TypeAlias = Callable[[RunContext[Any]], str | Awaitable[str]]
SystemPrompt: TypeAlias = str | FromFile | SystemFunction

_PLACEHOLDER: Final = re.compile(r"(?<!\{)\{([A-Za-z_]\w*)\}(?!\})")


def filled(template: str, args: Mapping[str, Any]) -> str:
    """Return *template* with the arguments inserted; placeholders inside them are not replaced."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return as_text(args[name]) if name in args else match[0]

    return _PLACEHOLDER.sub(value, template)


def unknown_placeholders(template: str, names: Iterable[str]) -> list[str]:
    """Return the placeholders in *template* that are not among *names*."""
    known = set(names)
    found = dict.fromkeys(match[1] for match in _PLACEHOLDER.finditer(template))
    return [name for name in found if name not in known]


async def system_text(system: SystemFunction, ctx: RunContext, owner: str) -> str:
    """Return the system prompt that *system* returns for the call of *ctx*.

    Raises:
        DefinitionError: it is no text.
    """
    text = system(ctx)
    if inspect.isawaitable(text):
        text = await text
    if not isinstance(text, str):
        raise DefinitionError(f"the system prompt of {owner} must be text, and {text!r} is not")
    return text


def as_text(value: Any) -> str:
    """Return *value* as a model reads it: text unchanged, other values as JSON if possible."""
    if value is None:
        return ""
    try:
        return str(value) if isinstance(value, str) else to_json(value, "a value")
    except Exception:  # noqa: BLE001 - it has no JSON form, or its class raised
        return _as_str(value)


def _as_str(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - foreign code; the model needs some text
        return f"<{type(value).__name__}>"
