"""``Signature``: which parameters of a callable the caller fills in, and which the framework.

Annotations are resolved on first use, so that they may refer to names that are defined later.
"""

import functools
import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
)
from enum import Enum, auto
from functools import cached_property
from typing import Any, cast

from treefold.core.docstring import without_parameters
from treefold.core.errors import DefinitionError
from treefold.core.function import Injected, RunContext
from treefold.core.parameter import MISSING, Parameter
from treefold.core.parameters import REST, Parameters

_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Kind(Enum):
    """How a callable returns its result."""

    COROUTINE = auto()
    STREAM = auto()
    SYNC = auto()

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> "Kind":
        """Return the kind of *fn*."""
        for candidate in (fn, getattr(fn, "__call__", None)):  # noqa: B004 - an object may be async
            if inspect.iscoroutinefunction(candidate):
                return cls.COROUTINE
            if inspect.isasyncgenfunction(candidate):
                return cls.STREAM
        return cls.SYNC


class Signature:
    """The signature of one callable, split between its caller and the framework."""

    def __init__(
        self,
        owner: str,
        fn: Callable[..., Any],
        *,
        context: str | None = None,
        fixed: Iterable[str] = (),
    ) -> None:
        self._owner = owner
        self._fn = fn
        self._context = context  # the parameter for the RunContext, whatever its annotation
        self._fixed = frozenset(fixed)  # parameters that have the same value in all calls
        self.raw = inspect.signature(fn).parameters
        kinds = {p.kind for p in self.raw.values()}
        self.takes_more = inspect.Parameter.VAR_KEYWORD in kinds
        self._takes_rest = inspect.Parameter.VAR_POSITIONAL in kinds
        by_name = not self._takes_rest and inspect.Parameter.POSITIONAL_ONLY not in kinds
        # Calls the callable with its values by name.
        self.call: Callable[..., Any] = fn if by_name else self._call_by_position

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The annotations; one that cannot be resolved stays a string."""
        fn = underlying(self._fn)
        try:
            return typing.get_type_hints(fn, include_extras=True)
        except (NameError, AttributeError):
            return {name: _resolved(fn, name) for name in fn.__annotations__}

    @property
    def returns(self) -> Any:
        """The type of the result; for a stream, that of each value."""
        hint = self.hints.get("return", Any)
        if typing.get_origin(hint) in {AsyncIterator, AsyncIterable, AsyncGenerator}:
            return typing.get_args(hint)[0]
        return hint

    @cached_property
    def injected(self) -> Mapping[str, type[Injected]]:
        """The parameters that the framework fills in."""
        found = {name: _injected_type(self.hints[name]) for name in self.raw if name in self.hints}
        if self._context is not None:
            found[self._context] = RunContext
        return {name: kind for name, kind in found.items() if kind is not None}

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters that a caller fills in."""
        unseen = self._fixed.union(self.injected)
        items = [
            Parameter(p.name, self.hints.get(p.name, Any), p.default)
            for p in self.raw.values()
            if p.kind not in _VARIADIC and p.name not in unseen
        ]
        return Parameters(
            self._owner,
            items,
            positional=[
                p.name
                for p in self.raw.values()
                if p.kind in POSITIONAL and p.name not in self.injected
            ],
            unseen=unseen,
            takes_more=self.takes_more,
            takes_rest=self._takes_rest,
            docstring=inspect.getdoc(underlying(self._fn)),
        )

    def may_take_context(self, name: str) -> bool:
        """Whether the annotation of a parameter allows a RunContext."""
        hint = self.hints.get(name, Any)
        return hint in {Any, object} or isinstance(hint, str) or _injected_type(hint) is RunContext

    def inject(self, values: dict[str, Any], ctx: RunContext | None) -> None:
        """Add to *values* what the framework fills in, unless the caller has passed it."""
        for name, kind in self.injected.items():
            if name in values:
                continue
            found = ctx if kind is RunContext else kind.current()
            if found is not None:
                values[name] = found
            elif self.raw[name].default is MISSING:
                raise DefinitionError(
                    f"{self._owner!r} wants a {kind.__name__} as {name!r} and there is none here:"
                    " run it through an Agent, pass one by name, or give the parameter a default"
                )

    def _call_by_position(self, /, **left: Any) -> Any:
        """Call a callable that does not take all of its arguments by name."""
        rest = left.pop(REST, ())
        leading: list[Any] = []
        for p in self.raw.values():
            if p.kind is p.POSITIONAL_ONLY or (rest and p.kind is p.POSITIONAL_OR_KEYWORD):
                if p.name not in left and p.default is MISSING:
                    # The call below then raises TypeError with the name of the missing argument.
                    break
                leading.append(left.pop(p.name, p.default))
        return self._fn(*leading, *rest, **left)

    def with_defaults(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return *values* with the defaults of missing ones added."""
        defaults = {p.name: p.default for p in self.raw.values() if p.default is not MISSING}
        return defaults | dict(values)


def underlying(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind a partial, a wrapper or a callable object."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    fn = inspect.unwrap(fn)
    return fn if inspect.isroutine(fn) else type(fn).__call__


def description_of(fn: Callable[..., Any]) -> str:
    """Return the docstring of *fn* without the text about its parameters."""
    doc = inspect.getdoc(underlying(fn))
    if not doc:
        return ""
    parameters = inspect.signature(fn).parameters.values()
    return without_parameters(doc, {p.name for p in parameters if p.kind not in _VARIADIC})


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of *fn*, or of its class."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    return getattr(fn, "__name__", type(fn).__name__)


def _resolved(fn: Callable[..., Any], name: str) -> Any:
    annotation = fn.__annotations__[name]
    alone = type("alone", (), {"__annotations__": {name: annotation}})
    try:
        return typing.get_type_hints(alone, fn.__globals__, include_extras=True)[name]
    except (NameError, AttributeError):
        # Of 'RunContext[Deps]' the name of the dependencies is of no use here.
        head = annotation.partition("[")[0] if isinstance(annotation, str) else ""
        known = fn.__globals__.get(head)
        return known if _injected_type(known) is not None else annotation


def _injected_type(hint: Any) -> type[Injected] | None:
    """Return the Injected type in *hint*, which may be Optional, Annotated or generic."""
    for candidate in (hint, typing.get_origin(hint)):
        if isinstance(candidate, type) and issubclass(candidate, Injected):
            return candidate
    found = (_injected_type(argument) for argument in typing.get_args(hint))
    return next((kind for kind in found if kind is not None), None)
