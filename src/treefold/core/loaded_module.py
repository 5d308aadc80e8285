"""Finds modules that are imported already, without importing them."""

import sys
from types import ModuleType


def loaded_module(name: str) -> ModuleType | None:
    """Return a module that is imported; None if it is not, or another thread is importing it.

    Example:
        >>> loaded_module("sys").__name__, loaded_module("no_such_module")
        ('sys', None)
    """
    module = sys.modules.get(name)
    # As importlib does: what a module defines is not there before its import has ended.
    is_importing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_importing else module
