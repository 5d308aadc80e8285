"""Names that a package exports and loads when they are first used.

So that importing a package is quick, and a program pays only for what it takes. Type checkers read
the ``__init__.pyi`` beside it.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

Getattr = Callable[[str], object]
Dir = Callable[[], list[str]]


def exports(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Getattr, Dir, list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for *package*.

    *homes* says which names each module has.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return load, lambda: [*vars(sys.modules[package]), *home_of], sorted(home_of)
