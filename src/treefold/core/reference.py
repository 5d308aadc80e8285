"""References to what a program defines, such as "app:approve", by which a journal names it."""

import sys
from functools import partial
from pathlib import PurePath
from typing import Any, Final, cast

LOADED_FILE: Final = "treefold run "  # begins the name of a module that a command line names


def reference_to(thing: object) -> str:
    """Return the name of a function or class, or of the class of an object, with its module."""
    if isinstance(thing, partial):
        return reference_to(cast("partial[Any]", thing).func)
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
