"""The context that an agent keeps between turns: the latest items in a queue, others by id."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

from treefold.core.errors import InvalidValueError, UnregisteredError
from treefold.core.function import Injected, checked_tags
from treefold.core.plain import required_key, to_plain
from treefold.turns.hooks import ContextPoolHook, ContextQueueHook, Hook, HookPoint, fire


@dataclass(slots=True, frozen=True)
class ContextItem:
    """A value to remember. Returned by a tool, it is stored by the agent that ran the tool.

    Without an id it is appended to the agent's ContextQueue, with one it is added to its
    ContextPool.

    Example:
        >>> ContextItem("Berlin", id="city", description="Where the user lives").id
        'city'
    """

    content: Any
    id: str | None = None
    description: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the item as plain data."""
        content = to_plain(self.content, f"the content of context item {self.id or '(no id)'}")
        return {"content": content, "id": self.id, "description": self.description}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContextItem":
        """Restore from ``to_dict()``."""
        return cls(required_key(data, "content", cls), data.get("id"), data.get("description"))


class ContextQueue(Injected):
    """The latest items, oldest first; when it is full, the oldest is evicted.

    A tool that declares a ``ContextQueue`` parameter receives that of the agent that runs it.

    Example:
        >>> import asyncio
        >>> queue = ContextQueue(limit=2)
        >>> asyncio.run(queue.append(ContextItem("a"), ContextItem("b"), ContextItem("c")))
        >>> [item.content for item in queue.items]
        ['b', 'c']
    """

    before_append = HookPoint(ContextQueueHook.BEFORE_APPEND)
    after_append = HookPoint(ContextQueueHook.AFTER_APPEND)
    before_clear = HookPoint(ContextQueueHook.BEFORE_CLEAR)
    after_clear = HookPoint(ContextQueueHook.AFTER_CLEAR)
    on_evict = HookPoint(ContextQueueHook.ON_EVICT)

    def __init__(self, limit: int, tags: Iterable[str] | None = None) -> None:
        self.limit = _checked_limit(limit, "ContextQueue")
        self.tags = checked_tags(tags, "a ContextQueue")
        self.hooks: list[Hook] = []
        self._items: deque[ContextItem] = deque(maxlen=limit)

    def __repr__(self) -> str:
        return f"<ContextQueue {len(self)} of {self.limit}>"

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ContextItem]:
        return iter(self.items)

    @classmethod
    def current(cls) -> "ContextQueue | None":  # pyright: ignore[reportIncompatibleMethodOverride]
        memory = _memory.get()
        return None if memory is None else memory[0]

    @property
    def items(self) -> list[ContextItem]:
        """The items, oldest first."""
        return list(self._items)

    async def append(self, *items: ContextItem) -> None:
        """Append *items* in order."""
        for item in items:
            _check_item(item)
        await fire(self, ContextQueueHook.BEFORE_APPEND, self, list(items))
        for item in items:
            while len(self._items) == self.limit:  # a hook may let another task append
                await fire(self, ContextQueueHook.ON_EVICT, self, self._items.popleft())
            self._items.append(item)
        await fire(self, ContextQueueHook.AFTER_APPEND, self, list(items))

    async def clear(self) -> None:
        """Remove all items."""
        await fire(self, ContextQueueHook.BEFORE_CLEAR, self, self.items)
        self._items.clear()
        await fire(self, ContextQueueHook.AFTER_CLEAR, self)

    def branch(self, limit: int | None = None) -> Self:
        """Return an independent copy of the same class with the same items, hooks and tags."""
        branch = type(self)(self.limit if limit is None else limit, self.tags)
        branch.hooks.extend(self.hooks)
        branch._items.extend(self._items)
        return branch

    def to_dict(self) -> dict[str, Any]:
        """Return the queue as plain data, without its hooks."""
        items = [item.to_dict() for item in self._items]
        return {"limit": self.limit, "items": items, "tags": sorted(self.tags)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore from ``to_dict()``."""
        queue = cls(required_key(data, "limit", cls), data.get("tags"))
        queue._items.extend(map(ContextItem.from_dict, required_key(data, "items", cls)))
        return queue


class ContextPool(Injected):
    """Items by id; when a limit is reached, a new item evicts the oldest.

    A tool that declares a ``ContextPool`` parameter receives that of the agent that runs it.

    Example:
        >>> import asyncio
        >>> pool = ContextPool()
        >>> asyncio.run(pool.add(ContextItem("Berlin", id="city", description="The user's home")))
        >>> print(pool.catalogue())
        - [city] The user's home
    """

    before_add = HookPoint(ContextPoolHook.BEFORE_ADD)
    after_add = HookPoint(ContextPoolHook.AFTER_ADD)
    before_remove = HookPoint(ContextPoolHook.BEFORE_REMOVE)
    after_remove = HookPoint(ContextPoolHook.AFTER_REMOVE)
    before_clear = HookPoint(ContextPoolHook.BEFORE_CLEAR)
    after_clear = HookPoint(ContextPoolHook.AFTER_CLEAR)
    on_evict = HookPoint(ContextPoolHook.ON_EVICT)

    def __init__(self, limit: int | None = None, tags: Iterable[str] | None = None) -> None:
        self.limit = limit if limit is None else _checked_limit(limit, "ContextPool")
        self.tags = checked_tags(tags, "a ContextPool")
        self.hooks: list[Hook] = []
        self._items: dict[str, ContextItem] = {}

    def __repr__(self) -> str:
        return f"<ContextPool {len(self)} of {self.limit or 'any number'}>"

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ContextItem]:
        return iter(self.items)

    @classmethod
    def current(cls) -> "ContextPool | None":  # pyright: ignore[reportIncompatibleMethodOverride]
        memory = _memory.get()
        return None if memory is None else memory[1]

    @property
    def items(self) -> list[ContextItem]:
        """The items, oldest first."""
        return list(self._items.values())

    def get(self, id: str) -> ContextItem:
        """Return the item with this id.

        Raises:
            UnregisteredError: there is none (a KeyError).
        """
        if id not in self._items:
            known = ", ".join(self._items) or "nothing"
            raise UnregisteredError(f"the pool has no item {id!r}; it has {known}")
        return self._items[id]

    def catalogue(self) -> str:
        """Return one line for each item, its id and description, for a model to choose from."""
        return "\n".join(
            f"- [{item.id}] {' '.join((item.description or '').split())}".rstrip()
            for item in self.items
        )

    async def add(self, item: ContextItem) -> None:
        """Store *item* under its id; it replaces an item with the same id."""
        if _check_item(item).id is None:
            raise InvalidValueError(
                f"{item!r} has no id; give it one, or append it to a ContextQueue"
            )
        await fire(self, ContextPoolHook.BEFORE_ADD, self, item)
        while self._is_full_for(item):  # a hook may let another task add
            oldest = self._items.pop(next(iter(self._items)))
            await fire(self, ContextPoolHook.ON_EVICT, self, oldest)
        self._put(item)
        await fire(self, ContextPoolHook.AFTER_ADD, self, item)

    async def remove(self, id: str) -> None:
        """Remove the item with this id."""
        item = self.get(id)
        await fire(self, ContextPoolHook.BEFORE_REMOVE, self, item)
        self._items.pop(id, None)
        await fire(self, ContextPoolHook.AFTER_REMOVE, self, item)

    async def clear(self) -> None:
        """Remove all items."""
        await fire(self, ContextPoolHook.BEFORE_CLEAR, self, self.items)
        self._items.clear()
        await fire(self, ContextPoolHook.AFTER_CLEAR, self)

    def branch(self) -> Self:
        """Return an independent copy of the same class with the same items, hooks and tags."""
        branch = type(self)(self.limit, self.tags)
        branch.hooks.extend(self.hooks)
        branch._items.update(self._items)
        return branch

    def to_dict(self) -> dict[str, Any]:
        """Return the pool as plain data, without its hooks."""
        items = [item.to_dict() for item in self.items]
        return {"limit": self.limit, "items": items, "tags": sorted(self.tags)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore from ``to_dict()``."""
        pool = cls(required_key(data, "limit", cls), data.get("tags"))
        for item in map(ContextItem.from_dict, required_key(data, "items", cls)):
            pool._put(item)
        return pool

    def _is_full_for(self, item: ContextItem) -> bool:
        return self.limit is not None and len(self) >= self.limit and item.id not in self._items

    def _put(self, item: ContextItem) -> None:
        if item.id is not None:
            self._items[item.id] = item


_memory: ContextVar[tuple[ContextQueue, ContextPool] | None] = ContextVar(
    "treefold.memory", default=None
)


class MemoryScope:
    """A ``with`` block in which started tools receive this queue and this pool."""

    __slots__ = ("_memory", "_token")

    def __init__(self, queue: ContextQueue, pool: ContextPool) -> None:
        self._memory = (queue, pool)

    def __enter__(self) -> None:
        self._token = _memory.set(self._memory)

    def __exit__(self, *_: object) -> None:
        _memory.reset(self._token)


def _checked_limit(limit: int, owner: str) -> int:
    if limit < 1:
        raise InvalidValueError(f"the limit of a {owner} must be at least 1, got {limit}")
    return limit


def _check_item(item: ContextItem) -> ContextItem:
    if not isinstance(item, ContextItem):
        raise InvalidValueError(f"{item!r} is not a ContextItem; write ContextItem({item!r})")
    return item
