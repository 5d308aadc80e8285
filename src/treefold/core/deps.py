"""Dependencies: what a program gives the calls of a run as ``ctx.deps``."""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from treefold.core.reference import reference_to


@dataclass(slots=True, frozen=True)
class RunInfo:
    """The run that dependencies are made for, as every process that runs it sees it.

    Attributes:
        function: the name of its top-level function.
        inputs: the arguments of that; with a store, as they are in the journal.
        tags: those of the function.
        number: the number of the run.
        key: the key that its caller gave; empty if there is none.

    Example:
        >>> from treefold import RunContext, RunInfo, Runtime, tool
        >>> def connect(run: RunInfo) -> dict[str, str]:
        ...     return {"tenant": run.inputs["tenant"]}
        >>> @tool
        ... async def whose(ctx: RunContext[dict[str, str]], tenant: str) -> str:
        ...     return f"for {ctx.deps['tenant']}"
        >>> with Runtime(deps=connect):
        ...     whose.run_sync(tenant="ada")
        'for ada'
    """

    function: str
    inputs: Mapping[str, Any]
    tags: frozenset[str]
    number: int
    key: str = ""


@dataclass(slots=True, frozen=True, eq=False)
class DepsSource:
    """Where dependencies come from: an object that is used as it is, or a factory of them.

    Attributes:
        name: what people call it, such as "app:connect".
        make: makes them for one run; None for an object, which belongs to the program.
    """

    name: str
    given: Any
    make: Callable[[RunInfo], Any] | None

    @classmethod
    def of(cls, deps: Any) -> "DepsSource | None":
        """Return the source that the option *deps* names; None if that is None.

        Functions, methods, classes and partials are factories, and nothing else is: an object that
        can be called may be a dependency.
        """
        if deps is None:
            return None
        if not _is_factory(deps):
            return cls(reference_to(deps), deps, None)
        factory: Any = deps
        if inspect.isasyncgenfunction(deps):
            factory = asynccontextmanager(deps)
        elif inspect.isgeneratorfunction(deps):
            factory = contextmanager(deps)
        return cls(reference_to(deps), deps, factory if _takes_run(deps) else lambda _: factory())


def _is_factory(deps: Any) -> bool:
    is_partial = isinstance(deps, functools.partial)
    return is_partial or inspect.isroutine(deps) or inspect.isclass(deps)


def _takes_run(factory: Callable[..., Any]) -> bool:
    """Whether *factory* has a parameter that must be given."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # a function of C without a signature
        return False
    return any(
        p.default is p.empty and p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
        for p in parameters
    )
