"""Remove the secrets of a connection from messages for people and models."""

from collections.abc import Iterable, Mapping
from typing import Final

from treefold.core.inherited_variables import is_inherited

_SHORTEST: Final = 4  # characters; shorter values are not secret, and would be found everywhere
_REPLACEMENT: Final = "***"
_FOLDER: Final = "PWD"  # not inherited, because a program may be started in another


class Secrets:
    """Values that must not be shown."""

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first, as one may be part of another.
        found = {value.strip() for value in values}
        self._values = sorted((v for v in found if len(v) >= _SHORTEST), key=len, reverse=True)

    @classmethod
    def of(cls, env: Mapping[str, str], headers: Mapping[str, str]) -> "Secrets":
        """Return the secrets in an environment and in headers."""
        given = [
            value
            for name, value in env.items()
            if name != _FOLDER and not is_inherited(name, value)
        ]
        for value in headers.values():
            given += [value, value.rpartition(" ")[2]]  # 'Bearer KEY', and KEY alone
        return cls(given)

    def __repr__(self) -> str:
        return f"<Secrets {_REPLACEMENT}>"

    def scrub(self, text: str) -> str:
        """Return *text* with every secret replaced."""
        for value in self._values:
            text = text.replace(value, _REPLACEMENT)
        return text
