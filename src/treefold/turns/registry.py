"""Find things by name, process-wide or within a scope."""

import difflib
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from treefold.core.errors import DuplicateNameError, UnregisteredError
from treefold.turns.origin import Origin

T = TypeVar("T")


@dataclass(slots=True)
class _Scope:
    """What all registries hold, by registry and name, as far as it was registered in here."""

    outer: "_Scope | None" = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    origins: dict[tuple[str, str], Origin] = field(default_factory=dict[tuple[str, str], Origin])


_process = _Scope()
_inner: ContextVar[_Scope] = ContextVar("treefold.registries")


class Registry(Generic[T]):
    """Names and what they stand for; names of an inner scope hide those of the outer ones.

    Example:
        >>> from treefold import Agent, AgentRegistry, registries
        >>> with registries():
        ...     agent = Agent("clerk", "Keeps the books", [])
        ...     AgentRegistry.get("clerk") is agent
        True
    """

    def __init__(self, kind: str, missing: type[UnregisteredError], remedy: str) -> None:
        self._kind = kind
        self._missing = missing
        self._remedy = remedy
        self._ever_used = False  # in any scope: most programs have no global hook at all

    def get(self, name: str) -> T:
        """Return what is registered under *name*.

        Raises:
            UnregisteredError: nothing is; the subclass says what was looked for.
        """
        for table in self._tables():
            if name in table:
                return table[name]
        near = difflib.get_close_matches(str(name), self._names(), n=1)
        meant = f"did you mean {near[0]!r}? Otherwise " if near else ""
        raise self._missing(f"no {self._kind} is called {name!r}; {meant}{self._remedy}")

    def all(self) -> list[T]:
        """Return everything that can be found here, in order of registration."""
        found: dict[str, T] = {}
        for table in reversed(list(self._tables())):
            found.update(table)
        return list(found.values())

    def empty(self) -> bool:
        """Whether nothing at all can be found here."""
        if not self._ever_used:
            return True
        scope: _Scope | None = _inner.get(_process)
        while scope is not None:
            if scope.tables.get(self._kind):
                return False
            scope = scope.outer
        return True

    def register(self, name: str, item: T, origin: Origin | None = None) -> T | None:
        """Enter *item* under *name* in the innermost scope.

        An item whose definition at *origin* is run again, in a notebook or because its module is
        reloaded, is replaced; it is returned.

        Raises:
            DuplicateNameError: the name is taken there (a ValueError).
        """
        table, origins = self._innermost(), _inner.get(_process).origins
        before = table.get(name)
        if before is not None and before is not item:
            earlier = origins.get((self._kind, name))
            if origin is None or earlier is None or not origin.is_again(earlier):
                raise DuplicateNameError(
                    f"the name of {self._kind} {name!r} is taken; choose another, free it with"
                    f" {self._kind.title()}Registry.unregister({name!r}), or work in a scope of"
                    " your own: 'with registries():'"
                )
        self.replace(name, item, origin)
        return before

    def replace(self, name: str, item: T, origin: Origin | None = None) -> None:
        """Enter *item* under *name* in the innermost scope, also if the name is taken."""
        self._innermost()[name] = item
        origins = _inner.get(_process).origins
        if origin is None:
            origins.pop((self._kind, name), None)
        else:
            origins[self._kind, name] = origin

    def clear(self) -> None:
        """Take out all names of the innermost scope: outside ``with registries():``, every name."""
        scope = _inner.get(_process)
        for name in scope.tables.pop(self._kind, {}):
            scope.origins.pop((self._kind, name), None)

    def unregister(self, name: str) -> None:
        """Take *name* out; whoever holds the item may go on using it.

        Raises:
            UnregisteredError: nothing is registered under it.
        """
        self.get(name)
        for scope in _scopes():
            if scope.tables.get(self._kind, {}).pop(name, None) is not None:
                scope.origins.pop((self._kind, name), None)
                return

    def _names(self) -> list[str]:
        return [name for table in self._tables() for name in table]

    def _innermost(self) -> dict[str, T]:
        self._ever_used = True
        return _inner.get(_process).tables.setdefault(self._kind, {})

    def _tables(self) -> Iterator[dict[str, T]]:
        return (scope.tables.get(self._kind, {}) for scope in _scopes())


def _scopes() -> Iterator[_Scope]:
    """Yield the scopes that names are looked for in, the innermost first."""
    scope: _Scope | None = _inner.get(_process)
    while scope is not None:
        yield scope
        scope = scope.outer


@contextmanager
def registries() -> Generator[None]:
    """Open a scope for tools, agents and hooks: a test, a tenant.

    What is registered inside is found only inside, and gone afterwards; what was registered
    outside is still found, unless the same name hides it. Global hooks of the outside still fire.

    Example:
        >>> from treefold import ToolRegistry, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def fetch(url: str) -> str: ...
        ...     ToolRegistry.get("fetch")
        <Tool fetch>
        >>> ToolRegistry.get("fetch")
        Traceback (most recent call last):
            ...
        treefold.core.errors.UnregisteredToolError: no tool is called 'fetch'; ...
    """
    token = _inner.set(_Scope(outer=_inner.get(_process)))
    try:
        yield
    finally:
        with suppress(ValueError):  # the block was left in another context than it was entered in
            _inner.reset(token)
