"""References to what a program defines, such as "app:approve", by which a journal names it."""

import sys
from functools import partial
from pathlib import PurePath
from types import MethodType
from typing import Any, Final, cast

LOADED_FILE: Final = "treefold run "  # begins the name of a module that a command line names


def reference_to(thing: object) -> str:
    """Return the name of a function or class, or of the class of an object, with its module.

    What may act otherwise has another name: a method that a class inherits, a partial function.
    """
    if isinstance(thing, partial):
        module, _, name = reference_to(cast("partial[Any]", thing).func).partition(":")
        return f"{module}:partial({name})"
    if isinstance(thing, MethodType):
        owner: Any = thing.__self__
        owner = owner if isinstance(owner, type) else type(owner)
        return f"{_module_name(owner.__module__)}:{owner.__qualname__}.{thing.__name__}"
    named: Any = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{_module_name(named.__module__)}:{named.__qualname__}"


def _module_name(name: str) -> str:
    """Return the name of a module, the same whether it was imported or started as a program."""
    if name != "__main__":
        return name.removeprefix(LOADED_FILE)
    main = sys.modules[name]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return spec.name
    return PurePath(getattr(main, "__file__", None) or name).stem
