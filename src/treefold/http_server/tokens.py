"""The token that a client sends with each request."""

import secrets
from typing import Final

from treefold.core.errors import InvalidValueError

SHORTEST: Final = 16  # characters


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def checked_token(token: str, what: str) -> str:
    """Return *token* if it can be sent in a header and is not too short; *what* names its source.

    Raises:
        InvalidValueError: it cannot be used. The message does not contain the token.

    Example:
        >>> checked_token("secret", "token")
        Traceback (most recent call last):
        treefold.errors.InvalidValueError: token must have at least 16 characters, got 6
    """
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidValueError(f"{what} must consist of ASCII letters, digits and punctuation")
    if len(token) < SHORTEST:
        raise InvalidValueError(
            f"{what} must have at least {SHORTEST} characters, got {len(token)}"
        )
    return token
