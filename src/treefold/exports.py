"""Load the public names of a module when they are first used.

The stub (``.pyi``) beside the module lists them: type checkers read it, and so does this, once,
when the first name is used. Importing the module is therefore quick, and a program pays only for
what it uses.
"""

import sys
from collections.abc import Callable
from importlib import import_module

Getattr = Callable[[str], object]
Dir = Callable[[], list[str]]


def exports(module: str) -> tuple[Getattr, Dir]:
    """Return ``__getattr__`` and ``__dir__`` for *module*.

    ``__all__`` is loaded as the names are. It leaves out the submodules, for ``import *``.
    """

    def load(name: str) -> object:
        names = homes(module)
        if name == "__all__":
            found = sorted(name for name, home in names.items() if home != module)
        elif name not in names:
            text = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=sys.modules[module])
        elif names[name] == module:
            found = import_module(f"{module}.{name}")
        else:
            found = getattr(import_module(names[name]), name)
        setattr(sys.modules[module], name, found)
        return found

    return load, lambda: sorted(homes(module))


_HOMES: dict[str, dict[str, str]] = {}


def homes(module: str) -> dict[str, str]:
    """Return the names that the stub of *module* exports, each with the module it comes from."""
    if module not in _HOMES:
        _HOMES[module] = _exported(_stub(module))
    return _HOMES[module]


def _stub(module: str) -> str:
    found = sys.modules[module]
    path = str(found.__file__).rpartition(".")[0] + ".pyi"
    # Unlike open(), the loader also reads from a zip file; every loader of files has get_data.
    return found.__loader__.get_data(path).decode()  # pyright: ignore


def _exported(stub: str) -> dict[str, str]:
    """Return what *stub* re-exports by ``from home import name as name``."""
    # The parser of Python would take six times as long.
    words = stub.replace("(", " ").replace(",", " ").split()
    found: dict[str, str] = {}
    home = ""
    for first, second, third in zip(words, words[1:], words[2:], strict=False):
        if first == "from" and third == "import":
            home = second
        elif second == "as" and first == third:
            found[first] = home
    return found
