"""Where in a program something was defined, and whether that definition was run again."""

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

from treefold.core.signature import underlying

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep
# Interpreter prompts, IPython, cells of ipykernel (Jupyter, VS Code) and of marimo. Compiled on
# first use.
_INTERACTIVE: Final = (
    r"<(stdin|input|console|python-input-.*|ipython-input-.*|ipython console)>"
    r"|.*[/\\](ipykernel_\d+[/\\]\d+\.py|__marimo__cell_.*)"
)


@dataclass(slots=True, frozen=True, eq=False)
class Origin:
    """The location of a definition in one execution of a module or of interactive input.

    Attributes:
        file: the source file.
        qualname: the qualified name of the definition.
        line: the line of the definition; None if a bound object or partial arguments make several
            things of one.
        namespace: the globals of the code; a script that is run again has new ones.
        spec: the module spec; a module that is reloaded has a new one.
        function: the function, if it has one; the same function is no rerun of a definition.
        is_unique: whether there is one such thing, and no closure of it with other values.
    """

    file: str
    qualname: str
    line: int | None
    namespace: dict[str, Any]
    spec: object
    function: object = None
    is_unique: bool = False

    def is_rerun_of(self, earlier: "Origin") -> bool:
        """Whether this is the definition *earlier*, run again: a reload, a cell, the same line."""
        if self.function is not None and self.function is earlier.function:
            return False
        interactive = self.is_interactive and earlier.is_interactive
        if interactive and "<locals>" not in self.qualname:
            return True
        if self.qualname != earlier.qualname or not (interactive or self.file == earlier.file):
            return False
        if self.spec is not earlier.spec or self.namespace is not earlier.namespace:
            return True
        return self.is_unique and self.line == earlier.line

    def is_apart_from(self, earlier: "Origin | None") -> bool:
        """Whether a call of a function defined this, and not the same call *earlier*.

        That was defined elsewhere, or by this very line: in an earlier call of the function.
        """
        if self.line is None or not self._function_around:
            return False
        if earlier is None:
            return True
        if self.function is not None and self.function is earlier.function:
            return False
        here, there = (self.file, self._function_around), (earlier.file, earlier._function_around)
        return here != there or self.line == earlier.line

    @property
    def _function_around(self) -> str:
        """The function whose calls define it; empty for the top level of a module."""
        return self.qualname.rpartition("<locals>")[0]

    @property
    def is_interactive(self) -> bool:
        """Whether it is in a cell of a notebook, or was typed at a prompt."""
        return re.fullmatch(_INTERACTIVE, self.file) is not None


def origin_of(fn: Callable[..., Any]) -> Origin | None:
    """Return where *fn* was defined; None if it is not a Python function."""
    found = underlying(fn)
    code: CodeType | None = getattr(found, "__code__", None)
    namespace: dict[str, Any] | None = getattr(found, "__globals__", None)
    if code is None or namespace is None:
        return None
    line = code.co_firstlineno if found is fn else None
    is_unique = line is not None and getattr(found, "__closure__", None) is None
    spec = namespace.get("__spec__")
    return Origin(
        code.co_filename, found.__qualname__, line, namespace, spec, found, is_unique=is_unique
    )


def redefines(new: object, old: object) -> bool:
    """Whether *new*, a function of treefold, is the definition of *old*, run again."""
    if new is old:
        return False
    before, after = _origin_of_wrapped(old), _origin_of_wrapped(new)
    return before is not None and after is not None and after.is_rerun_of(before)


def defines_apart(new: object, old: object) -> bool:
    """Whether a call of a function has defined *new*, a function of treefold, apart from *old*."""
    after = _origin_of_wrapped(new)
    return after is not None and after.is_apart_from(_origin_of_wrapped(old))


def newer_definition(old: object) -> object | None:
    """Return what the name of *old*, a function of treefold, means now in its notebook.

    None if it was not defined in one, or if the name means *old* itself or nothing any more.
    """
    origin = _origin_of_wrapped(old)
    if origin is None or not origin.is_interactive:
        return None
    current = origin.namespace.get(origin.qualname)
    return None if current is old else current


def _origin_of_wrapped(function: object) -> Origin | None:
    wrapped: Callable[..., Any] | None = getattr(function, "__wrapped__", None)
    return None if wrapped is None else origin_of(wrapped)


def origin_of_instance(instance: object) -> Origin | None:
    """Return where *instance* is created, from within its ``__init__``."""
    frame = inspect.currentframe()
    while frame is not None and (_is_ours(frame) or _is_constructor(frame, instance)):
        frame = frame.f_back
    if frame is None:
        return None
    namespace, code = frame.f_globals, frame.f_code
    spec = namespace.get("__spec__")
    if code.co_name == "<module>":
        return Origin(code.co_filename, "<module>", None, namespace, spec)
    qualname = f"{code.co_qualname}.<locals>.{type(instance).__name__}"
    return Origin(code.co_filename, qualname, frame.f_lineno, namespace, spec)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)


def _is_constructor(frame: FrameType, instance: object) -> bool:
    code = frame.f_code
    return code.co_name == "__init__" and frame.f_locals.get(code.co_varnames[0]) is instance
