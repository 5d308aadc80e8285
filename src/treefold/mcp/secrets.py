"""What a server is told in confidence, kept out of what people and models read."""

from collections.abc import Iterable, Mapping
from typing import Final

_SHORTEST: Final = 4  # characters; what is shorter is no secret, and would be found everywhere
_HIDDEN: Final = "***"
_KNOWN_TO_ALL: Final = frozenset({
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "PWD", "PYTHONPATH", "SHELL", "TERM", "TMPDIR",
    "USER", "VIRTUAL_ENV",
})  # fmt: skip


class Secrets:
    """Values that must not be seen."""

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first, in case one is part of another.
        found = {value.strip() for value in values}
        self._values = sorted((v for v in found if len(v) >= _SHORTEST), key=len, reverse=True)

    @classmethod
    def of(cls, env: Mapping[str, str], headers: Mapping[str, str]) -> "Secrets":
        """Return those in an environment and in headers."""
        given = [value for name, value in env.items() if name not in _KNOWN_TO_ALL]
        for value in headers.values():
            given += [value, value.rpartition(" ")[2]]  # 'Bearer key', and the key alone
        return cls(given)

    def __repr__(self) -> str:
        return f"<Secrets {_HIDDEN}>"

    def scrub(self, text: str) -> str:
        """Return *text* without them."""
        for value in self._values:
            text = text.replace(value, _HIDDEN)
        return text
