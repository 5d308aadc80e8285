"""Registries of tools, agents and hooks by name, process-wide or within a scope."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from treefold.core.errors import DuplicateNameError, UnregisteredError
from treefold.core.origin import Origin
from treefold.core.suggestions import did_you_mean

T = TypeVar("T")


class _Scope:
    """What is registered in one scope, by kind of registry and name.

    Attributes:
        is_of_calls: it has what calls of functions have defined, and only their code sees it.
    """

    def __init__(self, outer: "_Scope | None" = None, *, is_of_calls: bool = False) -> None:
        self.outer = outer
        self.is_of_calls = is_of_calls
        self.tables: dict[str, dict[str, Any]] = {}
        self.origins: dict[tuple[str, str], Origin] = {}


_process_scope = _Scope()
_current_scope: ContextVar[_Scope] = ContextVar("treefold.registries")


class Registry(Generic[T]):
    """A mapping of names to items; names of an inner scope hide those of outer scopes.

    Example:
        >>> from treefold import Agent, AgentRegistry, registries
        >>> with registries():
        ...     agent = Agent("clerk", "Keeps the books", [])
        ...     AgentRegistry.get("clerk") is agent
        True
    """

    def __init__(self, kind: str, error_type: type[UnregisteredError], remedy: str) -> None:
        self._kind = kind
        self._error_type = error_type
        self._remedy = remedy
        # Whether anything was ever registered, in any scope: most programs have no global hook.
        self.ever_used = False  # whether anything was ever registered, in whatever scope

    def get(self, name: str) -> T:
        """Return the item registered under *name*.

        Raises:
            UnregisteredError: there is none; its subclass tells the kind of registry.
        """
        for table in self._tables():
            if name in table:
                return table[name]
        meant = did_you_mean(name, self._names(), then=" Otherwise ")
        raise self._error_type(f"no {self._kind} is called {name!r}; {meant}{self._remedy}")

    def all(self) -> list[T]:
        """Return all items visible in the current scope, in order of registration."""
        found: dict[str, T] = {}
        for table in reversed(list(self._tables())):
            found.update(table)
        return list(found.values())

    def empty(self) -> bool:
        """Whether no item is visible in the current scope."""
        if not self.ever_used:
            return True
        scope: _Scope | None = _current_scope.get(_process_scope)
        while scope is not None:
            if scope.tables.get(self._kind):
                return False
            scope = scope.outer
        return True

    def register(
        self, name: str, item: T, origin: Origin | None = None, *, may_hide: bool = True
    ) -> T | None:
        """Register *item* under *name* in the innermost scope; return the item that it replaces.

        It replaces an earlier item if the definition at *origin* was run again, in a notebook or
        because its module was reloaded. What a call of a function has defined gets a scope of its
        own, in the current context, if the name is taken by what is defined elsewhere, and
        *may_hide* that.

        Raises:
            DuplicateNameError: the name is taken in that scope (a ValueError).
        """
        scope = self._scope_of(name)
        replaced = self._table(scope).get(name)
        if replaced is not None and replaced is not item:
            earlier = scope.origins.get((self._kind, name))
            if origin is not None and may_hide and origin.is_apart_from(earlier):
                scope, replaced = _scope_of_calls(), None
            elif origin is None or earlier is None or not origin.is_rerun_of(earlier):
                raise DuplicateNameError(
                    f"the name of {self._kind} {name!r} is taken; choose another, free it with"
                    f" {self._kind.title()}Registry.unregister({name!r}), or work in a scope of"
                    " your own: 'with registries():'"
                )
        self._put(scope, name, item, origin)
        return replaced

    def replace(self, name: str, item: T, origin: Origin | None = None) -> None:
        """Register *item* under *name* in the innermost scope, even if the name is taken."""
        self._put(self._scope_of(name), name, item, origin)

    def _scope_of(self, name: str) -> _Scope:
        """Return the scope in which *name* is registered, or is to be."""
        scope = _current_scope.get(_process_scope)
        while scope.is_of_calls and name not in self._table(scope) and scope.outer is not None:
            scope = scope.outer
        return scope

    def _table(self, scope: _Scope) -> dict[str, T]:
        return scope.tables.get(self._kind, {})

    def _put(self, scope: _Scope, name: str, item: T, origin: Origin | None) -> None:
        self.ever_used = True
        scope.tables.setdefault(self._kind, {})[name] = item
        if origin is None:
            scope.origins.pop((self._kind, name), None)
        else:
            scope.origins[self._kind, name] = origin

    def clear(self) -> None:
        """Unregister all names of the innermost scope, which may be that of the process."""
        for scope in _scopes():
            for name in scope.tables.pop(self._kind, {}):
                scope.origins.pop((self._kind, name), None)
            if not scope.is_of_calls:
                return

    def unregister(self, name: str) -> None:
        """Remove *name*; references to the item stay usable.

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

    def _tables(self) -> Iterator[dict[str, T]]:
        return (self._table(scope) for scope in _scopes())


def _scopes() -> Iterator[_Scope]:
    """Yield the scopes in which names are looked up, innermost first."""
    scope: _Scope | None = _current_scope.get(_process_scope)
    while scope is not None:
        yield scope
        scope = scope.outer


def _scope_of_calls() -> _Scope:
    """Return the scope of what calls of functions have defined in the current context."""
    scope = _current_scope.get(_process_scope)
    if not scope.is_of_calls:
        scope = _Scope(scope, is_of_calls=True)
        _current_scope.set(scope)
    return scope


@contextmanager
def registries() -> Generator[None]:
    """Open a scope for tools, agents and hooks, for example for a test or a tenant.

    What is registered inside is visible only inside and is discarded at the end. What was
    registered outside stays visible, unless the same name hides it, and outer global hooks still
    fire.

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
        treefold.errors.UnregisteredToolError: no tool is called 'fetch'; ...
    """
    token = _current_scope.set(_Scope(outer=_current_scope.get(_process_scope)))
    try:
        yield
    finally:
        with suppress(ValueError):  # exited in another contextvars.Context
            _current_scope.reset(token)
