"""``treefold init``: write a small project that runs."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from treefold.cli.exit_codes import DONE
from treefold.cli.loading import load_function
from treefold.cli.options import FILE, command
from treefold.core.errors import InvalidValueError
from treefold.core.provider import MODEL_VARIABLE
from treefold.models.choice import KEYED
from treefold.models.local.catalogue import QWEN_CODER_15B
from treefold.models.naming import find_model
from treefold.models.openai.model import LOCAL_SERVERS
from treefold.runtime.runtime import Runtime
from treefold.stores.memory_store import MemoryStore
from treefold.stores.transfer import export_tree
from treefold.testing.script_file import read_script
from treefold.testing.scripted import ScriptedModel
from treefold.turns.registry import registries
from treefold.version import __version__

# The templates, with the suffix .in, so that no tool takes them for files of this project.
_TEMPLATES: Final = Path(__file__).parent / "project"
_SUFFIX: Final = ".in"
_HIDDEN: Final = "gitignore"

_AGENT: Final = "agent.py"
_SCRIPT: Final = "script.json"
_RECORDED: Final = "tests/recorded.jsonl"
_QUESTION: Final = "What does moss need?"
_STAND_IN: Final = f"scripted:{_SCRIPT}"
_EXTRAS: Final = frozenset({"anthropic", "openai", "gemini", "local"})


@command("init", exit_codes="0 it was written, 2 nothing was written")
@click.argument("folder", type=FILE, default=".", metavar="[FOLDER]", help="this one by default")
@click.option(
    "--model",
    metavar="NAME",
    help="the model of the agent: anthropic:MODEL, openai:MODEL@URL, local:NAME, ...; by default"
    f" ${MODEL_VARIABLE}, or one that there is a key for, or a script that stands in for a model",
)
def init(folder: str, model: str | None) -> int:
    """Write a small project: an agent with a tool and a typed result, and a test of a recorded run.

    example: treefold init hello

    'make run' runs the agent, and 'make test' replays a run of it, offline and without a key. No
    file is overwritten.
    """
    path = Path(folder).expanduser()
    chosen = model or _available_model()
    _check_calls_functions(chosen)
    files = _files(path, chosen)
    _check_free(path, files)
    try:
        for place, text in files.items():
            (path / place).parent.mkdir(parents=True, exist_ok=True)
            (path / place).write_text(text, "utf-8")
        _record(path)
    except OSError as error:
        raise InvalidValueError(f"{error.filename} cannot be written ({error.strerror})") from error
    print("\n".join(_report(path, [*files, _RECORDED], chosen)))
    return DONE


def _available_model() -> str:
    """Return the model that the environment names or has a key for, or the script."""
    if name := os.environ.get(MODEL_VARIABLE):
        return name
    for kind in KEYED:
        if any(os.environ.get(key) for key in kind.key_names):
            return str(kind.provider)
    return _STAND_IN


def _check_calls_functions(model: str) -> None:
    """Raise InvalidValueError if *model* is a local one that cannot call the tool of the agent."""
    if model.partition(":")[0] == "local" and not find_model(model).calls_functions:
        raise InvalidValueError(
            f"{model} cannot call functions, and the agent of the project calls one: give --model"
            f" another model, such as {QWEN_CODER_15B.model_name}"
        )


def _files(folder: Path, model: str) -> dict[str, str]:
    """Return the texts of the files, by their places in the project."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "agent"
    provider = model.partition(":")[0]
    provider = "openai" if provider in LOCAL_SERVERS else provider  # they speak its protocol
    extras = sorted({"terminal", *(_EXTRAS & {provider})})
    values = {
        "NAME": name,
        "VERSION": __version__,
        "MODEL": model,
        "EXTRAS": ",".join(extras),
        "QUESTION": _QUESTION,
    }
    found: dict[str, str] = {}
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        place = template.relative_to(_TEMPLATES).as_posix().removesuffix(_SUFFIX)
        place = f".{place}" if place == _HIDDEN else place
        found[place] = _filled(template.read_text("utf-8"), values)
    return found


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text)


def _check_free(folder: Path, files: Mapping[str, str]) -> None:
    """Raise InvalidValueError if something would be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise InvalidValueError(f"{folder} is not a folder")
    taken = [place for place in (*files, _RECORDED) if os.path.lexists(folder / place)]
    if taken:
        raise InvalidValueError(
            f"{folder} has {', '.join(taken)} already, and no file is overwritten: give another"
            " folder"
        )


def _record(folder: Path) -> None:
    """Run the agent once, with the script instead of a model, and write the run for the test."""
    store = MemoryStore()
    model = ScriptedModel(*read_script(folder / _SCRIPT), name=_STAND_IN)
    with registries(), _no_bytecode():
        answer = load_function(f"{folder / _AGENT}:answer")
        with Runtime([answer], models=model, store=store) as runtime:
            node = runtime.invoke(answer, {"question": _QUESTION})
            node.result()
    export_tree(store, node.id, folder / _RECORDED)


@contextmanager
def _no_bytecode() -> Generator[None]:
    """Import without leaving a ``__pycache__`` in the project."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _report(folder: Path, places: list[str], model: str) -> list[str]:
    lines = [f"wrote {folder / place}" for place in sorted(places)]
    lines += ["", "next:"]
    if folder.resolve() != Path.cwd():
        lines.append(f"  cd {shlex.quote(str(folder))}")
    python = _python_option()
    lines += [
        f"  make run{python}",
        f"  make test{python}    # needs pytest, and neither a key nor a network",
        "",
    ]
    if model == _STAND_IN:
        lines.append(
            f"No key was found, so {_SCRIPT} stands in for a model. With one, such as:"
            f" make run{python} MODEL=anthropic"
        )
    else:
        lines.append(f"The agent uses {model}; the Makefile says so.")
    return lines


def _python_option() -> str:
    """Return what ``make`` has to be told if its default python is not this one."""
    default = shutil.which("python3")
    is_this = default is not None and Path(default).parent == Path(sys.executable).parent
    return "" if is_this else f" PYTHON={sys.executable}"
