"""An API key that cannot be printed or saved by accident."""

import re
from collections.abc import Mapping
from typing import Final, NoReturn
from urllib.parse import urlsplit, urlunsplit

from treefold.core.errors import InvalidValueError

# A shorter value, in characters, is not a secret, and would be found in any text.
_MIN_LENGTH: Final = 4
_HIDDEN: Final = "***"
_SECRET_HEADER: Final = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)


class Secret:
    """An API key; only ``reveal()`` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.strip()  # a key from a file ends with a line break
        if not self._value.isascii() or not self._value.isprintable():
            raise InvalidValueError("the key has characters that no key has; was it copied whole?")

    def __repr__(self) -> str:
        return f"Secret({_HIDDEN})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled: create the model in the other process")

    def reveal(self) -> str:
        """Return the key."""
        return self._value

    def is_in(self, text: str) -> bool:
        """Whether *text* contains the key."""
        return len(self._value) >= _MIN_LENGTH and self._value in text

    def scrub(self, text: str) -> str:
        """Return *text* without the key, which servers often repeat in error messages."""
        return text.replace(self._value, _HIDDEN) if self.is_in(text) else text


def public_url(url: str) -> str:
    """Return *url* without credentials and query parameters."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def public_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* with the values of those that carry credentials hidden."""
    return {
        name: _HIDDEN if _SECRET_HEADER.search(name) else value for name, value in headers.items()
    }
