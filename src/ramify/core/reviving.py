"""Exceptions and results of an earlier process, as its functions gave them."""

import sys
from functools import lru_cache
from typing import Any

from ramify.core.errors import RecordedError
from ramify.core.events import Failure
from ramify.core.packing import Opaque
from ramify.core.plain import from_plain


def exception_of(failure: Failure) -> Exception:
    """Return an exception of the same class, if that is loaded here, and otherwise a RecordedError.

    It says the same. What else the class keeps of an exception is not there.
    """
    kind: Any = getattr(sys.modules.get(failure.module), failure.type, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return _made(kind, failure.message)
    return RecordedError(failure.type, failure.message)


def _made(kind: type[Exception], message: str) -> Exception:
    for same in (kind, _speaking(kind)):
        error = kind.__new__(same, message)
        error.args = (message,)
        if Failure.of(error) == Failure(kind.__name__, message):
            break
    return error


@lru_cache(maxsize=256)
def _speaking(kind: type[Exception]) -> type[Exception]:
    """Return *kind*, saying what it was given whatever else it would want to know."""

    def say(self: Exception) -> str:
        return str(self.args[0]) if self.args else ""

    namespace = {"__str__": say, "message": property(say), "__module__": kind.__module__}
    namespace |= {"__slots__": (), "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), namespace)


def revived(annotation: Any, value: Any) -> Any:
    """Return what a function gave, from what was written down, as its *annotation* says."""
    if value is None or annotation in {Any, str, int, float, bool, None}:
        return value
    if type(value) in {Opaque, tuple, set, frozenset, bytes}:
        return value
    return from_plain(annotation, value)
