"""Find things by name, process-wide or within a scope."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from ramify.core.errors import DuplicateNameError, UnregisteredError

T = TypeVar("T")


@dataclass(slots=True)
class _Scope(Generic[T]):
    outer: "_Scope[T] | None" = None
    items: dict[str, T] = field(default_factory=dict[str, T])


class Registry(Generic[T]):
    """Names and what they stand for; names of an inner scope hide those of the outer ones."""

    every: ClassVar[list["Registry[Any]"]] = []

    def __init__(self, kind: str, missing: type[UnregisteredError], remedy: str) -> None:
        self._kind = kind
        self._missing = missing
        self._remedy = remedy
        self._process = _Scope[T]()
        self._inner: ContextVar[_Scope[T]] = ContextVar(kind)
        Registry.every.append(self)

    def get(self, name: str) -> T:
        """Return what is registered under *name*.

        Raises:
            UnregisteredError: nothing is; the subclass says what was looked for.
        """
        scope: _Scope[T] | None = self._innermost()
        while scope is not None:
            if name in scope.items:
                return scope.items[name]
            scope = scope.outer
        raise self._missing(f"no {self._kind} is called {name!r}; {self._remedy}")

    def all(self) -> list[T]:
        """Return everything that can be found here, in order of registration."""
        found: dict[str, T] = {}
        for scope in reversed(list(self._scopes())):
            found.update(scope.items)
        return list(found.values())

    def empty(self) -> bool:
        """Whether nothing at all can be found here."""
        scope: _Scope[T] | None = self._innermost()
        while scope is not None:
            if scope.items:
                return False
            scope = scope.outer
        return True

    def register(self, name: str, item: T) -> None:
        """Enter *item* under *name* in the innermost scope.

        Raises:
            DuplicateNameError: the name is taken there (a ValueError).
        """
        items = self._innermost().items
        if items.get(name, item) is not item:
            raise DuplicateNameError(
                f"the name of {self._kind} {name!r} is taken; choose another, or unregister it"
                " first"
            )
        items[name] = item

    def unregister(self, name: str) -> None:
        """Take *name* out; whoever holds the item may go on using it.

        Raises:
            UnregisteredError: nothing is registered under it.
        """
        self.get(name)
        for scope in self._scopes():
            if scope.items.pop(name, None) is not None:
                return

    def make_way(self, name: str) -> None:
        """Free *name* in the innermost scope, if it is taken, for what will replace it."""
        self._innermost().items.pop(name, None)

    def _innermost(self) -> _Scope[T]:
        return self._inner.get(self._process)

    def _scopes(self) -> Iterator[_Scope[T]]:
        scope: _Scope[T] | None = self._innermost()
        while scope is not None:
            yield scope
            scope = scope.outer

    @contextmanager
    def scoped(self) -> Generator[None]:
        """Open an inner scope; what is registered in it is gone when the block ends."""
        token = self._inner.set(_Scope(outer=self._innermost()))
        try:
            yield
        finally:
            self._inner.reset(token)


@contextmanager
def registries() -> Generator[None]:
    """Open a scope for tools, agents and hooks: a test, a tenant.

    What is registered inside is found only inside, and gone afterwards; what was registered
    outside is still found, unless the same name hides it. Global hooks of the outside still fire.

    Example:
        >>> from ramify import ToolRegistry, registries, tool
        >>> with registries():
        ...     @tool
        ...     async def fetch(url: str) -> str: ...
        ...     ToolRegistry.get("fetch")
        <Tool fetch>
        >>> ToolRegistry.get("fetch")
        Traceback (most recent call last):
            ...
        ramify.core.errors.UnregisteredToolError: no tool is called 'fetch'; ...
    """
    with ExitStack() as stack:
        for registry in Registry.every:
            stack.enter_context(registry.scoped())
        yield
