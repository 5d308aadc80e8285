"""Exceptions and results of an earlier process, as its functions gave them."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, cast

from treefold.core.errors import RecordedError
from treefold.core.events import Failure
from treefold.core.plain import from_plain
from treefold.core.value_codec import Unserializable

_PACKAGE: Final = __name__.partition(".")[0]
_BUILTINS: Final = {tuple, set, frozenset}  # which come back as they were, whatever is said


def exception_of(failure: Failure) -> Exception | SystemExit:
    """Return an exception of the same class, if that is loaded here, and otherwise a RecordedError.

    It says the same. What else the class keeps of an exception is not there. Of a class that cannot
    be made from outside it is one of the next class above that can.
    """
    kind: Any = getattr(_module_of(failure), failure.type, None)
    if kind is SystemExit:  # which functions of other programs like to raise
        message = failure.message
        return SystemExit(int(message) if message.lstrip("-").isdecimal() else message)
    if isinstance(kind, type) and issubclass(kind, Exception):
        for base in kind.__mro__[: kind.__mro__.index(Exception) + (kind is Exception)]:
            with suppress(Exception):  # foreign code, which may want anything
                return _made(base, failure)
    return RecordedError(failure.type, failure.message)


def _module_of(failure: Failure) -> ModuleType | None:
    """Return the loaded module of the exception's class."""
    if module := sys.modules.get(failure.module):
        return module
    # Journals are older than the package's name: a module that is unknown here is looked for under
    # the same path in this package.
    package, _, path = failure.module.partition(".")
    return None if package in sys.modules else sys.modules.get(f"{_PACKAGE}.{path}")


def _made(kind: type[Exception], failure: Failure) -> Exception:
    error = _new(kind, failure)
    return error if Failure.of(error) == failure else _new(_speaking(kind, failure.type), failure)


def _new(kind: type[Exception], failure: Failure) -> Exception:
    message = failure.message
    if issubclass(kind, ExceptionGroup):
        group = cast("type[ExceptionGroup[Exception]]", kind)
        return group.__new__(group, message, [RecordedError(failure.type, message)])
    try:
        error = kind.__new__(kind, message)
    except TypeError:  # it wants more
        error = Exception.__new__(kind, message)
    error.args = (message,)
    return error


@lru_cache(maxsize=256)
def _speaking(kind: type[Exception], name: str) -> type[Exception]:
    """Return *kind*, saying what it was given whatever else it would want to know."""

    def say(self: Exception) -> str:
        return str(self.args[0]) if self.args else ""

    namespace = {"__str__": say, "message": property(say), "__module__": kind.__module__}
    namespace |= {"__slots__": (), "__qualname__": name}
    return type(name, (kind,), namespace)


def restored(annotation: Any, value: Any) -> Any:
    """Return what a function gave, from what was written down, as its *annotation* says."""
    if value is None or annotation in {Any, str, int, float, bool, None}:
        return value
    if type(value) in {Unserializable, bytes, bytearray}:
        return value
    try:
        return value if _fits(annotation, value) else _made_of(annotation, value)
    except Exception:  # noqa: BLE001 - foreign code, or no JSON; the rest of the tree can be read
        return value


def _fits(annotation: Any, value: Any) -> bool:
    """Whether *value* is of that type, and JSON would make something else of it: a tuple in it."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - slow

    with suppress(TypeError):  # there is more in it than JSON can say
        if json.loads(json.dumps(value)) == value:
            return False
    try:
        found = TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return type(found) is type(value) and found == value


def _made_of(annotation: Any, value: Any) -> Any:
    """Return *value* with the objects in it made again, or as it is if that gives another kind."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow

    try:
        plain = json.loads(json.dumps(value, default=_listed))
    except TypeError:  # bytes, say, which are what they were
        made = TypeAdapter(annotation).validate_python(value)
    else:
        made = from_plain(annotation, plain)
        made = value if made is plain else made
    other_kind = type(value) in _BUILTINS and type(made) is not type(value)
    return value if other_kind or isinstance(made, Iterator) else made


def _listed(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return list(cast("set[Any]", value))
    raise TypeError(f"{value!r} is no JSON")
