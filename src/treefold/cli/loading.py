"""Find the functions that a command line names."""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

from treefold.core.errors import InvalidValueError
from treefold.core.events import Failure
from treefold.core.function import Function, checked_function

MODEL_HELP: Final = (
    "the model of agents that name none: local, anthropic:MODEL, openai:MODEL@URL, ..."
)


def load_function(target: str) -> Function:
    """Return the function that MODULE:FUNCTION names."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InvalidValueError(f"{target!r} is not MODULE:FUNCTION, such as package.module:main")
    return _named(_loaded(place), place, name)


def load_functions(targets: Iterable[str]) -> list[Function]:
    """Return the functions that MODULE or MODULE:FUNCTION name, each once.

    Those of a module are the ones in its ``__all__``, or else the public ones that it did not
    import from elsewhere.
    """
    found: dict[Function, None] = {}
    modules: dict[str, ModuleType] = {}
    for target in targets:
        place, _, name = target.rpartition(":")
        place, name = (place, name) if place and name else (target, "")
        if place not in modules:
            modules[place] = _loaded(place)
        names = [name] if name else _public(modules[place], place)
        found.update(dict.fromkeys(_named(modules[place], place, one) for one in names))
    return list(found)


def _named(module: ModuleType, place: str, name: str) -> Function:
    found = getattr(module, name, None)
    if callable(found):
        return checked_function(found, f"{place}:{name}")
    if not isinstance(found, Function):
        known = [name for name, value in vars(module).items() if isinstance(value, Function)]
        listed = ", ".join(known) or "none"
        raise InvalidValueError(f"{place} has no function {name!r}; it has {listed}")
    return found


def _public(module: ModuleType, place: str) -> list[str]:
    """Return the names of the functions that a module has for others."""
    listed: list[str] | None = getattr(module, "__all__", None)
    imported = set[str]() if listed is not None else _imported(module)
    names = [
        name
        for name in (listed if listed is not None else vars(module))
        if isinstance(getattr(module, name, None), Function)
        and not (listed is None and (name.startswith("_") or name in imported))
    ]
    if not names:
        more = f"; it imports some, name one to have it: {place}:NAME" if imported else ""
        raise InvalidValueError(f"{place} has no public functions of its own{more}")
    return names


def _imported(module: ModuleType) -> set[str]:
    """Return the names that a module has from elsewhere."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # there is no source to look at
        return set()
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _loaded(place: str) -> ModuleType:
    try:
        return _module(place)
    except (Exception, SystemExit) as error:
        raise InvalidValueError(f"{place} cannot be imported: {Failure.of(error)}") from error


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        sys.path.insert(0, "")  # as python -m does
        return importlib.import_module(place)
    sys.path.insert(0, str(path.parent))  # as python does with a file
    name = f"treefold run {path.stem}"  # which no import can mean
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
