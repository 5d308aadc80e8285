"""Async generators that are closed by their owner instead of the event loop."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import AsyncGeneratorType
from typing import Any, Self, cast

# Strong references, so that no generator is collected as garbage together with its owner.
_open: set[AsyncGenerator[Any, None]] = set()


class OwnedStream:
    """A generator that another generator iterates over, and closes when it ends itself.

    The event loop closes generators that were dropped, and at shutdown all that are left, in any
    order. Where one generator iterates over another, it could close the inner one while the outer
    one is using it. So the inner one is not registered with the loop, as it otherwise would be at
    its first step.
    """

    def __init__(self) -> None:
        self._stream: AsyncGenerator[Any, None] | None = None

    async def next(self, make: Callable[[], AsyncGenerator[Any, None]]) -> Any:
        """Return the next value of the generator, which the first call creates with *make*.

        Raises:
            StopAsyncIteration: there is no further value.
        """
        if self._stream is not None:
            return await anext(self._stream)
        self._stream = make()
        _open.add(self._stream)
        return await _without_asyncgen_hooks(self._stream.__anext__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is None:
            return
        try:
            await self._stream.aclose()
        finally:
            _open.discard(self._stream)


class SelfClosingStream(AsyncGenerator[Any, None]):
    """A generator that is closed properly even if its consumer drops it just before the loop ends.

    The event loop closes a dropped generator in a task, and cancels that task if the loop ends
    before the task has started: GeneratorExit never reaches the generator, and its cleanup does not
    run. So the generator is hidden from the loop and this object is registered instead. It closes
    the generator when it is dropped, or at the latest in ``shutdown_asyncgens()``.
    """

    def __init__(self, stream: AsyncGenerator[Any, None], name: str) -> None:
        self.__qualname__ = name
        self._stream = cast("AsyncGeneratorType[Any, None]", stream)
        self._loop: asyncio.AbstractEventLoop | None = None  # set at the first step
        self._firstiter: Callable[[Any], object] | None = None  # registers a generator at the loop
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<async generator {self.__qualname__}>"

    async def __anext__(self) -> Any:
        return await self._step(self._stream.__anext__)

    async def asend(self, value: Any, /) -> Any:
        return await self._step(self._stream.asend, value)

    async def athrow(self, *error: Any) -> Any:
        return await self._step(self._stream.athrow, *error)

    async def aclose(self) -> None:
        await self._step(self._stream.aclose)

    async def _step(self, step: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        try:
            return await (step(*args) if self._loop else self._first_step(step, *args))
        finally:
            if self._stream.ag_frame is None:
                _open.discard(self._stream)
                _dropped.discard(self)

    def _first_step(self, step: Callable[..., Awaitable[Any]], *args: Any) -> Awaitable[Any]:
        self._loop = asyncio.get_running_loop()
        self._firstiter = sys.get_asyncgen_hooks().firstiter
        self._register()
        _open.add(self._stream)
        return _without_asyncgen_hooks(step, *args)

    def _register(self) -> None:
        if self._firstiter is not None:
            self._firstiter(self)

    def __del__(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed() or self._stream.ag_frame is None:
            _open.discard(self._stream)
            return
        _dropped.add(self)
        # The loop holds a weak reference, which is already dead if this object was in a cycle.
        self._register()
        loop.call_soon_threadsafe(self._close, loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        self._closing = loop.create_task(self.aclose())


_dropped: set[SelfClosingStream] = set()  # those that are about to be closed


def _without_asyncgen_hooks(step: Callable[..., Awaitable[Any]], *args: Any) -> Awaitable[Any]:
    """Return the first step of a generator, created so that the loop does not register it."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return step(*args)
    finally:
        sys.set_asyncgen_hooks(*hooks)
