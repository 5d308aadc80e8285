"""Hooks: coroutine functions called at points in the life of a tool, turn, agent or context."""

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from enum import Enum
from typing import Any, Protocol, overload

from treefold.core.errors import DefinitionError, UnregisteredHookError
from treefold.core.function import checked_tags
from treefold.core.origin import origin_of
from treefold.core.signature import Signature
from treefold.turns.deferred import add_fixed_arguments
from treefold.turns.lock import CrossLoopLock
from treefold.turns.registry import Registry


class ToolHook(Enum):
    """Points in one invocation of a tool.

    BEFORE_INVOKE(**kwargs), ON_YIELD(value), AFTER_INVOKE(result), ON_ERROR(exc=exc): a hook for
    ON_ERROR has a parameter called ``exc``.

    Example:
        >>> from treefold import ToolHook, hook, registries
        >>> with registries():
        ...     @hook([ToolHook.BEFORE_INVOKE, ToolHook.ON_ERROR])
        ...     async def audit(**kwargs) -> None: ...
    """

    BEFORE_INVOKE = "before_invoke"
    ON_YIELD = "on_yield"
    AFTER_INVOKE = "after_invoke"
    ON_ERROR = "on_error"


class TurnHook(Enum):
    """Points in one run of a turn.

    BEFORE_RUN(turn), AFTER_RUN(turn, output), ON_TIMEOUT(turn), ON_ERROR(turn, exc),
    ON_COMPLETE(turn, stop_reason).

    Example:
        >>> from treefold import TurnHook, hook, registries
        >>> with registries():
        ...     @hook(TurnHook.ON_TIMEOUT)
        ...     async def complain(turn) -> None: ...
    """

    BEFORE_RUN = "before_run"
    AFTER_RUN = "after_run"
    ON_TIMEOUT = "on_timeout"
    ON_ERROR = "on_error"
    ON_COMPLETE = "on_complete"


class AgentHook(Enum):
    """Points in the loop of an agent.

    BEFORE_TURN(agent), AFTER_TURN(agent, turn), ON_TURN_VALUE(agent, turn, value),
    BEFORE_PUT(agent, turn), AFTER_PUT(agent, turn), ON_PAUSE(agent), ON_RESUME(agent). The last
    two fire when ``run()`` starts and stops waiting.

    Example:
        >>> from treefold import AgentHook, hook, registries
        >>> with registries():
        ...     @hook(AgentHook.ON_TURN_VALUE, tags={"chatty"})
        ...     async def show(agent, turn, value) -> None: ...
    """

    BEFORE_TURN = "before_turn"
    AFTER_TURN = "after_turn"
    ON_TURN_VALUE = "on_turn_value"
    BEFORE_PUT = "before_put"
    AFTER_PUT = "after_put"
    ON_PAUSE = "on_pause"
    ON_RESUME = "on_resume"


class ContextQueueHook(Enum):
    """Points in the life of a ContextQueue.

    BEFORE_APPEND(queue, items), AFTER_APPEND(queue, items), BEFORE_CLEAR(queue, items),
    AFTER_CLEAR(queue), ON_EVICT(queue, item).

    Example:
        >>> from treefold import ContextQueue
        >>> queue = ContextQueue(limit=10)
        >>> @queue.on_evict
        ... async def archive(queue, item) -> None: ...
    """

    BEFORE_APPEND = "before_append"
    AFTER_APPEND = "after_append"
    BEFORE_CLEAR = "before_clear"
    AFTER_CLEAR = "after_clear"
    ON_EVICT = "on_evict"


class ContextPoolHook(Enum):
    """Points in the life of a ContextPool.

    BEFORE_ADD(pool, item), AFTER_ADD(pool, item), BEFORE_REMOVE(pool, item),
    AFTER_REMOVE(pool, item), BEFORE_CLEAR(pool, items), AFTER_CLEAR(pool), ON_EVICT(pool, item).

    Example:
        >>> from treefold import ContextPool
        >>> pool = ContextPool()
        >>> @pool.before_add
        ... async def check(pool, item) -> None: ...
    """

    BEFORE_ADD = "before_add"
    AFTER_ADD = "after_add"
    BEFORE_REMOVE = "before_remove"
    AFTER_REMOVE = "after_remove"
    BEFORE_CLEAR = "before_clear"
    AFTER_CLEAR = "after_clear"
    ON_EVICT = "on_evict"


HookType = ToolHook | TurnHook | AgentHook | ContextQueueHook | ContextPoolHook
HookFn = Callable[..., Awaitable[Any]]


class Hook:
    """A coroutine function and the points at which it is called.

    Made by ``@hook(...)`` for all objects, or by a decorator such as ``@my_tool.on_error`` for one
    object.

    Example:
        >>> from treefold import registries, tool
        >>> with registries():
        ...     @tool
        ...     async def fetch(url: str) -> str: ...
        ...     @fetch.before_invoke
        ...     async def audit(url: str) -> None: ...
        >>> audit
        <Hook audit at BEFORE_INVOKE>
    """

    def __init__(
        self,
        fn: HookFn,
        types: Sequence[HookType],
        *,
        lock: bool = False,
        tags: Iterable[str] | None = None,
        fixed_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise DefinitionError(f"a hook must be an 'async def' function, got {fn!r}")
        if not types or not all(isinstance(kind, HookType) for kind in types):
            raise DefinitionError(
                f"hook {fn.__name__!r} needs hook types such as ToolHook.BEFORE_INVOKE, got"
                f" {', '.join(map(repr, types)) or 'none'}"
            )
        self.fn = fn
        self.types = tuple(types)
        self.lock = CrossLoopLock() if lock else None
        self.tags = checked_tags(tags, f"hook {fn.__name__!r}") or None
        self.fixed_kwargs = dict(fixed_kwargs or {})
        self._signature = Signature(fn.__name__, fn)
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__

    def __repr__(self) -> str:
        return f"<Hook {self.__name__} at {', '.join(type.name for type in self.types)}>"

    async def __call__(self, /, *args: Any, **kwargs: Any) -> None:
        """Call the function with its fixed arguments added, one call at a time if it has a lock.

        Keywords that it does not take are ignored.
        """
        if not self._signature.takes_more:
            kwargs = {name: kwargs[name] for name in self._signature.raw if name in kwargs}
        values = await add_fixed_arguments(self.fixed_kwargs, kwargs, f"hook {self.__name__!r}")
        async with self.lock or nullcontext():
            await self.fn(*args, **values)


class Hookable(Protocol):
    """An object that hooks can be attached to."""

    @property
    def hooks(self) -> list[Hook]: ...

    @property
    def tags(self) -> frozenset[str]: ...


HookRegistry: Registry[Hook] = Registry(
    "hook", UnregisteredHookError, "decorate a coroutine function of that name with @hook first"
)


class _Done:
    """An awaitable that is done: what ``fire`` mostly returns, cheaper than a coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        return iter(())  # pyright: ignore[reportReturnType] - an empty iterator is enough


_DONE = _Done()


def fire(owner: Hookable, kind: HookType, /, *args: Any, **kwargs: Any) -> Awaitable[None]:
    """Call the owner's own hooks for *kind*, then the global ones, each once."""
    if not owner.hooks and HookRegistry.empty():
        return _DONE
    return _fire(owner, kind, args, kwargs)


async def _fire(
    owner: Hookable, kind: HookType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    own = [hook for hook in owner.hooks if kind in hook.types]
    global_hooks = [
        hook
        for hook in HookRegistry.all()
        if kind in hook.types
        and hook not in own
        and (hook.tags is None or not hook.tags.isdisjoint(owner.tags))
    ]
    for hook in own + global_hooks:
        await hook(*args, **kwargs)


def hook(
    type: HookType | Sequence[HookType],
    *,
    lock: bool = False,
    tags: Iterable[str] | None = None,
    **fixed_kwargs: Any,
) -> Callable[[HookFn], Hook]:
    """Register the decorated coroutine function as a global hook, called for every object.

    With *tags* it is called only for objects that have at least one of them. Hooks attached to the
    object itself are called first; exceptions propagate.

    Example:
        >>> from treefold import ToolHook, hook, registries
        >>> with registries():
        ...     @hook(ToolHook.AFTER_INVOKE, tags={"io"})
        ...     async def log_io(result) -> None: ...
        >>> log_io
        <Hook log_io at AFTER_INVOKE>
    """
    if not isinstance(type, Enum | list | tuple | set):
        raise DefinitionError(
            f"@hook needs a hook type, got {type!r}; write '@hook(ToolHook.BEFORE_INVOKE)'"
        )
    types = [type] if isinstance(type, Enum) else list(type)

    def register(fn: HookFn) -> Hook:
        made = Hook(fn, types, lock=lock, tags=tags, fixed_kwargs=fixed_kwargs)
        HookRegistry.register(made.__name__, made, origin_of(fn))
        return made

    return register


class HookDecorator:
    """The decorator that ``owner.before_run`` evaluates to, with or without options."""

    def __init__(self, hooks: list[Hook], kind: HookType) -> None:
        self._hooks = hooks
        self._kind = kind

    @overload
    def __call__(self, fn: HookFn, /) -> Hook: ...

    @overload
    def __call__(
        self, /, *, lock: bool = False, **fixed_kwargs: Any
    ) -> Callable[[HookFn], Hook]: ...

    def __call__(
        self, fn: HookFn | None = None, /, *, lock: bool = False, **fixed_kwargs: Any
    ) -> Hook | Callable[[HookFn], Hook]:
        """Attach *fn*, or return a decorator that does."""

        def attach(fn: HookFn) -> Hook:
            if isinstance(fn, Hook) and self._kind in fn.types:
                made = fn
            else:
                fn = fn.fn if isinstance(fn, Hook) else fn
                made = Hook(fn, [self._kind], lock=lock, fixed_kwargs=fixed_kwargs)
            self._hooks.append(made)
            return made

        return attach if fn is None else attach(fn)


class HookPoint:
    """A descriptor: one point in the life of an object, as a decorator on that object."""

    def __init__(self, kind: HookType) -> None:
        self._kind = kind
        self.__doc__ = f"Attach a hook for {kind} to this one object."

    @overload
    def __get__(self, instance: None, owner: type) -> "HookPoint": ...

    @overload
    def __get__(self, instance: Hookable, owner: type) -> HookDecorator: ...

    def __get__(self, instance: Hookable | None, owner: type) -> "HookPoint | HookDecorator":
        return self if instance is None else HookDecorator(instance.hooks, self._kind)
