"""Load the functions that a command line names."""

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from treefold.cli.options import FILE
from treefold.core.errors import InvalidValueError
from treefold.core.events import Failure
from treefold.core.function import Function, checked_function
from treefold.core.reference import LOADED_FILE

TARGET: Final = FILE  # a module may be a file, which a shell can complete
MODEL_HELP: Final = (
    "the model of agents that name none, instead of TREEFOLD_MODEL: local, anthropic:MODEL, "
    "openai:MODEL@URL, FILE.py:NAME, scripted:FILE, ..."
)
ENGINE_HELP: Final = (
    "what places work on workers: procrastinate, temporal:HOST:PORT[/NAMESPACE], in-process, or "
    "MODULE:NAME for one of your own; by default procrastinate in the database of the store, if it "
    "is installed"
)
DEPS_HELP: Final = (
    "what functions have as ctx.deps: the name of an object, or of a factory, in a module or a .py "
    "file"
)
_SCRIPTED: Final = "scripted:"


def is_in_file(model: str) -> bool:
    """Whether *model* names a file that ``load_model`` reads, a script or a program."""
    return model.startswith(_SCRIPTED) or _place(model).endswith(".py")


def load_model(name: str | None) -> Any:
    """Return the model of an option ``--model``; a name that a runtime can find is left as it is.

    ``FILE.py:NAME`` is a model that a program makes. ``scripted:FILE.json`` is a list of replies
    (see ``treefold.testing.script_file``), and ``scripted:FILE.py:NAME`` a list of replies or a
    function that replies to a request.
    """
    if name is None or not is_in_file(name):
        return name
    from treefold.core.model import Model  # noqa: PLC0415 - few commands need it
    from treefold.testing.script_file import read_script  # noqa: PLC0415 - few commands need it
    from treefold.testing.scripted import ScriptedModel  # noqa: PLC0415 - few commands need it

    file = name.removeprefix(_SCRIPTED)
    place, attribute = _place(file), file.rpartition(":")[2]
    if not place.endswith(".py"):
        return ScriptedModel(*read_script(Path(file)), name=name)
    found = load_object(place, attribute)
    if isinstance(found, Model):
        return found
    if file == name:
        raise InvalidValueError(
            f"{place} has no model {attribute!r}; a list of replies, or a function that replies, is"
            f" given as {_SCRIPTED}{name}"
        )
    if isinstance(found, list | tuple):
        return ScriptedModel(*cast("Sequence[Any]", found), name=name)
    if not callable(found):
        raise InvalidValueError(
            f"{place} has no {attribute!r} that is a model, a list of replies or a function"
        )
    return ScriptedModel(cast("Any", found), name=name)


def _place(name: str) -> str:
    return name.rpartition(":")[0]


def load_deps(target: str | None) -> Any:
    """Return the dependencies that MODULE:NAME names."""
    if target is None:
        return None
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InvalidValueError(f"--deps {target} is not MODULE:NAME, such as app.py:connect")
    if (found := load_object(place, name)) is None:
        raise InvalidValueError(f"--deps {target}: {place} has no {name!r}")
    return found


def load_object(place: str, name: str) -> Any:
    """Return what a module or a file has by that name; None if it has nothing."""
    return getattr(load_module(place), name, None)


def load_function(target: str) -> Function:
    """Return the function that MODULE:FUNCTION names."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InvalidValueError(f"{target!r} is not MODULE:FUNCTION, such as package.module:main")
    return _named(load_module(place), place, name)


def load_functions(targets: Iterable[str]) -> list[Function]:
    """Return the functions that MODULE or MODULE:FUNCTION name, without duplicates.

    A module stands for the functions in its ``__all__``, or else for its public functions that it
    did not import.
    """
    found: dict[Function, None] = {}
    modules: dict[str, ModuleType] = {}
    for target in targets:
        place, _, name = target.rpartition(":")
        place, name = (place, name) if place and name else (target, "")
        if place not in modules:
            modules[place] = load_module(place)
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
    return cast("Function", found)


def _public(module: ModuleType, place: str) -> list[str]:
    """Return the names of the public functions of a module."""
    listed: list[str] | None = getattr(module, "__all__", None)
    imported = set[str]() if listed is not None else _imported(module)
    names = [
        name
        for name in (listed if listed is not None else vars(module))
        if isinstance(getattr(module, name, None), Function)
        and not (listed is None and (name.startswith("_") or name in imported))
    ]
    if not names:
        more = f"; to take one that it imports, name it: {place}:NAME" if imported else ""
        raise InvalidValueError(f"{place} has no public functions of its own{more}")
    return names


def _imported(module: ModuleType) -> set[str]:
    """Return the names that a module imports from other modules."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # the source is not available
        return set()
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def load_module(place: str) -> ModuleType:
    """Return the module that a command line names, or the one in a file.

    Raises:
        InvalidValueError: it cannot be imported.
    """
    try:
        return _module(place)
    except (Exception, SystemExit) as error:
        raise InvalidValueError(f"{place} cannot be imported: {Failure.of(error)}") from error


def _module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix != ".py":
        sys.path.insert(0, "")  # as ``python -m`` does
        return importlib.import_module(place)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    # It is run once, though several options name it: functions and what they are given have the
    # same classes then.
    key = (path.absolute(), path.stat().st_mtime_ns)
    if key not in _files:
        _files[key] = _run_file(path)
    return _files[key]


_files: dict[tuple[Path, int], ModuleType] = {}  # by path and time of change


def _run_file(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))  # as ``python FILE`` does
    name = f"{LOADED_FILE}{path.stem}"  # no import statement can name it
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
