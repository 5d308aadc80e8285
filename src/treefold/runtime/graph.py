"""The call graph: which functions there are and which may call which, checked before any runs."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from treefold.core.decisions import Rules
from treefold.core.errors import CallGraphError, InvalidValueError
from treefold.core.function import Function, checked_function, checked_functions
from treefold.core.origin import defines_apart, newer_definition, redefines
from treefold.core.suggestions import did_you_mean
from treefold.runtime.limits.model_names import ModelNames

log = logging.getLogger(__name__)


def discover(
    specs: Iterable[Function], models: ModelNames, known: Mapping[str, Function] | None = None
) -> dict[str, Function]:
    """Return *known*, *specs* and all functions that *specs* may call, by name.

    A function replaces a known one if it is the same definition, run again: the cell of a notebook,
    or a module that was reloaded. One that a call of a function has defined is used beside a known
    one of its name, which stays.

    Raises:
        CallGraphError: there are faults; it lists all of them.
    """
    roots = checked_functions(specs, "a Runtime")
    found = dict(known or {})
    paths = {name: name for name in found}  # the path by which each was found first
    faults: list[str] = []
    queue = deque((function, "") for function in roots)
    callees: dict[int, Sequence[Function]] = {}  # by the id() of their caller
    apart: dict[str, Function] = {}  # those that are used beside known ones
    while queue:
        function, above = queue.popleft()
        if id(function) in callees:
            continue
        name = function.name
        path = above + name
        other = found.setdefault(name, function)
        if other is not function:
            is_known = known is not None and other is known.get(name)
            if is_known and defines_apart(function, other):
                other = apart.setdefault(name, function)
            elif is_known and redefines(function, other):
                other = found[name] = function
            if other is not function:
                faults.append(_name_fault(function, other, path, paths[name]))
        paths.setdefault(name, path)
        faults += [f"{path}: {fault}" for fault in function.faults(models)]
        callees[id(function)] = function.may_call
        for used in callees[id(function)]:
            checked_function(used, f"the 'uses' of {name}")
            _warn_if_outdated(function, used)
            queue.append((used, f"{path} > "))
    faults += _cycles(roots, callees)
    if faults:
        raise CallGraphError(faults)
    return found


def _name_fault(function: Function, other: Function, path: str, other_path: str) -> str:
    two = (
        f"{path}: two functions are called {function.name!r}, this {function!r} and the"
        f" {other!r} of {other_path}"
    )
    if redefines(function, other) or redefines(other, function):
        return f"{two}: the definition was run again; run those of the functions that use it, too"
    return f"{two}; rename one"


def _warn_if_outdated(function: Function, used: Function) -> None:
    newer = newer_definition(used)
    if isinstance(newer, Function) and newer.name == used.name:
        outdated = "%s uses an earlier definition of %s; run the cell that defines %s again, too"
        log.warning(outdated, function.name, used.name, function.name)


def reachable(roots: Iterable[Function]) -> dict[str, Function]:
    """Return *roots* and all functions that they may call, by name."""
    found: dict[str, Function] = {}
    queue = deque(roots)
    while queue:
        function = queue.popleft()
        if found.setdefault(function.name, function) is function:
            queue.extend(one for one in function.may_call if one.name not in found)
    return found


def _cycles(roots: Iterable[Function], callees: Mapping[int, Sequence[Function]]) -> Iterator[str]:
    """Yield a fault for each cycle in which no function allows recursion."""
    done: set[int] = set()
    for root in roots:
        if id(root) in done:
            continue
        path = [root]
        below = [iter(callees[id(root)])]
        while path:
            function = next(below[-1], None)
            if function is None:
                done.add(id(path.pop()))
                below.pop()
            elif any(one is function for one in path):
                yield from _cycle_fault(path, function)
            elif id(function) not in done:
                path.append(function)
                below.append(iter(callees[id(function)]))


def _cycle_fault(path: list[Function], again: Function) -> Iterator[str]:
    start = next(n for n, one in enumerate(path) if one is again)
    cycle = path[start:]
    if any(function.uses_recursion for function in cycle):
        return
    way = " > ".join(function.name for function in [*path, again])
    what = "it calls itself" if len(cycle) == 1 else "calls go round in a circle"
    yield f"{way}: {what}; take it out of 'uses', or say uses_recursion=True for {again.name}"


def check_listed(rules: Rules, functions: Mapping[str, Function]) -> None:
    """Raise InvalidValueError if *rules* list a name that is not one of *functions*.

    Without *functions* nothing is checked.
    """
    listed = rules.disallowed | (rules.allowed or rules.disallowed)
    for name in sorted(listed) if functions else ():
        if name not in functions:
            hint = did_you_mean(name, functions)
            raise InvalidValueError(
                f"a tool is listed as {name!r}, which is none here{hint and f'; {hint}'}"
            )


def check_use(caller: Function, function: Function) -> None:
    """Raise CallGraphError unless *caller* may call *function*."""
    for used in caller.may_call:
        if used is function:
            return
    remedy = f"add it to the 'uses' of {caller.name}"
    if function is caller:
        remedy = "say uses_recursion=True"
    elif any(redefines(function, used) for used in caller.may_call):
        remedy = f"its definition was run again; run that of {caller.name} again, too"
    elif hasattr(function, "callable"):
        remedy += ", or call its callable directly"
    raise CallGraphError([f"{caller.name} may not call {function.name}: {remedy}"])
