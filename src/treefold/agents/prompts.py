"""Insert arguments into prompts.

Only ``{name}`` of a declared argument is replaced; other braces are left as they are.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from treefold.core.plain import to_json

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
