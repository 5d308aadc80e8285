"""A key that cannot be printed by accident."""

from typing import Final
from urllib.parse import urlsplit, urlunsplit

_SHORTEST: Final = 4  # characters; what is shorter is no secret, and would be found everywhere
_HIDDEN: Final = "***"


class Secret:
    """A key; only ``reveal()`` shows it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN})"

    def reveal(self) -> str:
        """Return the key itself."""
        return self._value

    def scrub(self, text: str) -> str:
        """Return *text* without the key: servers like to repeat it in their complaints."""
        return text.replace(self._value, _HIDDEN) if len(self._value) >= _SHORTEST else text


def public_url(url: str) -> str:
    """Return *url* without passwords and parameters."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
