"""References to what a program defines, such as "app:approve", by which a journal names it."""

import sys
from functools import partial
from pathlib import PurePath
from typing import Any, Final

LOADED_FILE: Final = "treefold run "  # begins the name of a module that a command line names


def reference_to(thing: Any) -> str:
    """Return the name of a function or class, or of the class of an object, with its module."""
    while isinstance(thing, partial):
        thing = thing.func
    kind: Any = type(thing)
    named = thing if hasattr(thing, "__qualname__") else kind
    return f"{_module_name(named.__module__)}:{named.__qualname__}"


def _module_name(name: str) -> str:
    """Return the name of a module, the same whether it was imported or started as a program."""
    if name != "__main__":
        return name.removeprefix(LOADED_FILE)
    main = sys.modules[name]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return spec.name
    return PurePath(getattr(main, "__file__", None) or name).stem
