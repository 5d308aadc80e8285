"""``treefold check``: what a Runtime would say of functions, and nothing is run."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import Any

from treefold.cli.exit_codes import DONE, FAILED
from treefold.cli.loading import load_functions
from treefold.cli.output import add_json_to, print_json
from treefold.core.errors import CallGraphError, TreefoldError
from treefold.core.function import Function
from treefold.core.parameter import JsonSchema
from treefold.runtime.graph import discover
from treefold.runtime.model_book import ModelBook
from treefold.views.text import cut, printable

_WIDEST = 100


def add_to(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand to the command."""
    parser = add_parser(
        "check",
        description="Check functions and all that they may call, as a Runtime does when it is\n"
        "made. Nothing is run, and no key is needed.",
        epilog=(
            "example: treefold check examples/survey.py\n\n"
            "Prints each function, and which may call which as a tree. What is wrong with them\n"
            "is on stderr, a line each. Of a module, all public functions are checked that it\n"
            "did not import.\n\n"
            "exit codes: 0 they can be run, 1 they have faults, 2 they cannot be loaded,\n"
            "130 it was interrupted"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "targets",
        metavar="MODULE[:FUNCTION]",
        nargs="+",
        help="a module or a .py file, and a name in it if not all are to be checked",
    )
    parser.add_argument(
        "--model",
        metavar="[NAME=]MODEL",
        action="append",
        default=[],
        help="what a name that agents use stands for, as in the models= of the Runtime, or else "
        "the model of agents that name none; may be repeated",
    )
    add_json_to(parser)
    parser.set_defaults(command=check)


def check(options: argparse.Namespace) -> int:
    """Check what *options* name."""
    with redirect_stdout(sys.stderr):  # imports may print
        functions = load_functions(options.targets)
    models = ModelBook(dict(map(_model, options.model)))
    faults = _faults(functions, models)
    known = _known(functions)
    if options.json:
        told = {"functions": [_data(one, functions) for one in known], "faults": faults}
        print_json(told)
    else:
        print("\n".join([*_table(known), "", *_trees(functions, known)]))
    for fault in faults:
        print(f"treefold check: {printable(fault)}", file=sys.stderr)
    return FAILED if faults else DONE


def _model(text: str) -> tuple[str, str]:
    name, equals, model = text.partition("=")
    return (name, model) if equals else ("default", text)


def _faults(functions: Sequence[Function], models: ModelBook) -> list[str]:
    try:
        discover(functions, models)
    except CallGraphError as error:
        return list(error.faults)
    except TreefoldError as error:  # so bad that the others were not looked at
        return [str(error)]
    return []


def _known(functions: Iterable[Function]) -> list[Function]:
    """Return *functions* and all that they may call, each before those that only it calls."""
    known: dict[int, Function] = {}
    queue = list(functions)
    for function in queue:  # which grows meanwhile
        if id(function) not in known:
            known[id(function)] = function
            queue.extend(_uses(function))
    return list(known.values())


def _uses(function: Function) -> list[Function]:
    """Return what *function* may call; what is no function is a fault, and is not shown here."""
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
    """Return what it is given; None if JSON has no words for it, which is no fault of code."""
    try:
        return function.input_schema
    except TreefoldError:
        return None


def _table(functions: Iterable[Function]) -> Iterator[str]:
    """Yield a line for each function: its kind, name, parameters and what it does."""
    for function in functions:
        kind = "agent" if function.is_agent else "code "
        given = ", ".join(one.name for one in function.parameters.items)
        about = function.description.strip().partition("\n")[0]
        line = f"{kind} {function.name}({given})" + (f"  {about}" if about else "")
        yield cut(printable(line), _WIDEST)


def _trees(functions: Sequence[Function], known: Sequence[Function]) -> Iterator[str]:
    """Yield which may call which, from those of *functions* that no other calls."""
    called = {id(used) for one in known for used in _uses(one) if used is not one}
    shown: set[int] = set()
    tops = [one for one in functions if id(one) not in called]
    for top in [*tops, *functions]:  # those in a circle are below nobody
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
