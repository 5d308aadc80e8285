"""Restore exceptions and results of an earlier process from their recorded form."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast

from treefold.core.errors import PUBLIC_MODULE, RecordedError
from treefold.core.events import Failure
from treefold.core.jsonable import Unserializable
from treefold.core.plain import from_plain

_BUILTINS: Final = {tuple, set, frozenset}  # restored as they were, whatever the annotation is


def exception_of(failure: Failure) -> Exception | SystemExit:
    """Return an exception of the recorded class, if that is loaded, otherwise a RecordedError.

    It has the same message, but no other attributes of the class. If an instance of the class
    cannot be created, it is one of the nearest base class that can.
    """
    kind: Any = getattr(_module_of(failure), failure.type, None)
    # Functions made for command lines often raise SystemExit.
    if kind is SystemExit:
        message = failure.message
        return SystemExit(int(message) if message.lstrip("-").isdecimal() else message)
    if isinstance(kind, type) and issubclass(kind, Exception):
        for base in kind.__mro__[: kind.__mro__.index(Exception) + (kind is Exception)]:
            # Foreign code may raise anything.
            with suppress(Exception):
                return _created(base, failure)
    return RecordedError(failure.type, failure.message)


def _module_of(failure: Failure) -> ModuleType | None:
    """Return the loaded module of the exception's class."""
    if failure.module == PUBLIC_MODULE:
        # It has no dependencies of its own, and finds the module that the class is defined in.
        return import_module(PUBLIC_MODULE)
    return sys.modules.get(failure.module)


def _created(kind: type[Exception], failure: Failure) -> Exception:
    error = _new(kind, failure)
    if Failure.of(error) == failure:
        return error
    return _new(_with_plain_message(kind, failure.type), failure)


def _new(kind: type[Exception], failure: Failure) -> Exception:
    message = failure.message
    if issubclass(kind, ExceptionGroup):
        group = cast("type[ExceptionGroup[Exception]]", kind)
        return group.__new__(group, message, [RecordedError(failure.type, message)])
    try:
        error = kind.__new__(kind, message)
    except TypeError:
        # The class's own __new__ requires more arguments.
        error = Exception.__new__(kind, message)
    error.args = (message,)
    return error


@lru_cache(maxsize=256)
def _with_plain_message(kind: type[Exception], name: str) -> type[Exception]:
    """Return a subclass of *kind* whose text is its first argument, without other attributes."""

    def message(self: Exception) -> str:
        return str(self.args[0]) if self.args else ""

    namespace = {"__str__": message, "message": property(message), "__module__": kind.__module__}
    namespace |= {"__slots__": (), "__qualname__": name}
    return type(name, (kind,), namespace)


def restored(annotation: Any, value: Any) -> Any:
    """Return the result of a function from its recorded form, as its *annotation* says."""
    if value is None or annotation in {Any, str, int, float, bool, None}:
        return value
    if type(value) in {Unserializable, bytes, bytearray}:
        return value
    try:
        return value if _fits(annotation, value) else _converted(annotation, value)
    except Exception:  # noqa: BLE001 - foreign code, or not JSON; the rest of the tree is readable
        return value


def _fits(annotation: Any, value: Any) -> bool:
    """Whether *value* already has that type, and JSON cannot express it (it contains a tuple)."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - slow

    # json.dumps raises TypeError for what JSON cannot express.
    with suppress(TypeError):
        if json.loads(json.dumps(value)) == value:
            return False
    try:
        found = TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return type(found) is type(value) and found == value


def _converted(annotation: Any, value: Any) -> Any:
    """Return *value* with its objects restored, or unchanged if that would change its type."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow

    try:
        plain = json.loads(json.dumps(value, default=_listed))
    except TypeError:
        # Bytes, for example, have been decoded already.
        converted = TypeAdapter(annotation).validate_python(value)
    else:
        converted = from_plain(annotation, plain)
        converted = value if converted is plain else converted
    other_type = type(value) in _BUILTINS and type(converted) is not type(value)
    return value if other_type or isinstance(converted, Iterator) else converted


def _listed(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return list(cast("set[Any]", value))
    raise TypeError(f"{value!r} is no JSON")
