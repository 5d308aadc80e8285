"""``treefold check``: check functions as a Runtime does, without running them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any

import click

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.loading import TARGET, load_functions
from treefold.cli.options import command, json_option
from treefold.cli.output import print_json
from treefold.core.errors import CallGraphError, TreefoldError
from treefold.core.function import Function
from treefold.core.parameter import JsonSchema
from treefold.core.truncation import truncate
from treefold.runtime.graph import discover
from treefold.runtime.limits.model_names import ModelNames
from treefold.views.text import printable

_WIDTH = 100


@command(
    "check",
    exit_codes="0 they can be run, 1 they have faults, 2 they cannot be loaded,\n"
    "130 it was interrupted",
)
@click.argument(
    "targets",
    type=TARGET,
    metavar="MODULE[:FUNCTION]...",
    nargs=-1,
    required=True,
    help="a module or a .py file, and a name in it to check only that function",
)
@click.option(
    "--model",
    "models",
    metavar="[NAME=]MODEL",
    multiple=True,
    help="the model that a name used by agents stands for, as in the models= of the Runtime, or "
    "without NAME the model of agents that name none; may be repeated",
)
@json_option
def check(targets: tuple[str, ...], models: tuple[str, ...], *, json: bool) -> int:
    """Check functions and all that they may call, as a Runtime does when it is made.
    Nothing is run, and no key is needed.

    example: treefold check examples/survey.py

    Prints each function, and which may call which as a tree. Faults are on stderr, one line each.
    All public functions that a module did not import are checked.
    """
    with redirect_stdout(sys.stderr):  # imported modules may print
        functions = load_functions(targets)
    faults = _faults(functions, ModelNames(dict(map(_model, models))))
    known = _known(functions)
    if json:
        print_json({"functions": [_data(one, functions) for one in known], "faults": faults})
    else:
        print("\n".join([*_table(known), "", *_trees(functions, known)]))
    for fault in faults:
        print(f"treefold check: {printable(fault)}", file=sys.stderr)
    return FAILED if faults else DONE


def _model(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    return (name, model) if equals else ("default", text)


def _faults(functions: Sequence[Function], models: ModelNames) -> list[str]:
    try:
        discover(functions, models)
    except CallGraphError as error:
        return list(error.faults)
    except TreefoldError as error:  # it prevents all further checks
        return [str(error)]
    return []


def _known(functions: Iterable[Function]) -> list[Function]:
    """Return *functions* and all that they may call, callers first."""
    known: dict[int, Function] = {}
    queue = list(functions)
    for function in queue:  # the list grows while it is iterated
        if id(function) not in known:
            known[id(function)] = function
            queue.extend(_uses(function))
    return list(known.values())


def _uses(function: Function) -> list[Function]:
    """Return what *function* may call, without values that are not functions: those are faults."""
    return [used for used in function.may_call if isinstance(used, Function)]


def _data(function: Function, named: Sequence[Function]) -> dict[str, Any]:
    return {
        "name": function.name,
        "agent": function.is_agent,
        "description": function.description,
        "inputs": _inputs(function),
        "uses": [used.name for used in _uses(function)],
        "named": any(one is function for one in named),
    }


def _inputs(function: Function) -> JsonSchema | None:
    """Return the schema of the inputs; None if JSON Schema cannot express it, which code may do."""
    try:
        return function.input_schema
    except TreefoldError:
        return None


def _table(functions: Iterable[Function]) -> Iterator[str]:
    """Yield a line for each function: its kind, name, parameters and description."""
    for function in functions:
        kind = "agent" if function.is_agent else "code "
        given = ", ".join(one.name for one in function.parameters.items)
        about = function.description.strip().partition("\n")[0]
        line = f"{kind} {function.name}({given})" + (f"  {about}" if about else "")
        yield truncate(printable(line), _WIDTH)


def _trees(functions: Sequence[Function], known: Sequence[Function]) -> Iterator[str]:
    """Yield call trees, from those of *functions* that no other function calls."""
    called = {id(used) for one in known for used in _uses(one) if used is not one}
    shown: set[int] = set()
    tops = [one for one in functions if id(one) not in called]
    for top in [*tops, *functions]:  # functions that call each other in a circle have no top
        if id(top) not in shown:
            yield from _tree(top, shown)


def _tree(top: Function, shown: set[int]) -> Iterator[str]:
    stack: list[tuple[Function, str, str, frozenset[int]]] = [(top, "", "", frozenset())]
    while stack:
        function, lead, below, above = stack.pop()
        if id(function) in above:
            yield f"{lead}{printable(function.name)} (again)"
            continue
        uses = _uses(function)
        known = id(function) in shown and bool(uses)
        yield f"{lead}{printable(function.name)}" + (" (see above)" if known else "")
        shown.add(id(function))
        if known:
            continue
        for number, used in reversed(list(enumerate(uses, 1))):
            last = number == len(uses)
            branch, gap = ("└─ ", "   ") if last else ("├─ ", "│  ")
            stack.append((used, below + branch, below + gap, above | {id(function)}))
