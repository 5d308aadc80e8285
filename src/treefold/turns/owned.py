"""Async generators that are not left to the event loop to close."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import AsyncGeneratorType
from typing import Any, Self, cast

_open: set[AsyncGenerator[Any, None]] = set()  # so that none is garbage together with its owner


class OwnedStream:
    """A generator that another generator iterates over, and closes when it ends itself.

    The event loop closes generators that were dropped, and at its end all that are left, in any
    order. Where one iterates over another, it would close the inner one under the outer. So it is
    not told of the inner one, which otherwise happens at the first step.
    """

    def __init__(self) -> None:
        self._stream: AsyncGenerator[Any, None] | None = None

    async def next(self, make: Callable[..., AsyncGenerator[Any, None]], *args: Any) -> Any:
        """Return the next value, or raise StopAsyncIteration; *make* makes the generator."""
        if self._stream is not None:
            return await anext(self._stream)
        self._stream = make(*args)
        _open.add(self._stream)
        return await _unknown_to_the_loop(self._stream.__anext__)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is None:
            return
        try:
            await self._stream.aclose()
        finally:
            _open.discard(self._stream)


class ClosedStream(AsyncGenerator[Any, None]):
    """A generator that is closed properly also if its consumer drops it and the loop then ends.

    The loop closes a dropped generator in a task, and cancels that task if it ends before the task
    has begun: GeneratorExit never arrives, and the generator cannot do what is left to do.
    So the generator is hidden from the loop, which knows of this object instead, and closes it in
    ``shutdown_asyncgens()`` unless that has happened before.
    """

    def __init__(self, stream: AsyncGenerator[Any, None], name: str) -> None:
        self.__qualname__ = name
        self._stream = cast("AsyncGeneratorType[Any, None]", stream)
        self._loop: asyncio.AbstractEventLoop | None = None  # in which it has begun
        self._announce: Callable[[Any], object] | None = None  # tells the loop of a generator
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
            return await (step(*args) if self._loop else self._first(step, *args))
        finally:
            if self._stream.ag_frame is None:
                _open.discard(self._stream)
                _dropped.discard(self)

    def _first(self, step: Callable[..., Awaitable[Any]], *args: Any) -> Awaitable[Any]:
        self._loop = asyncio.get_running_loop()
        self._announce = sys.get_asyncgen_hooks().firstiter
        self._register()
        _open.add(self._stream)
        return _unknown_to_the_loop(step, *args)

    def _register(self) -> None:
        if self._announce is not None:
            self._announce(self)

    def __del__(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed() or self._stream.ag_frame is None:
            _open.discard(self._stream)
            return
        _dropped.add(self)
        # The loop knows it by a weak reference, which is gone by now if it was in a cycle.
        self._register()
        loop.call_soon_threadsafe(self._close, loop)

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        self._closing = loop.create_task(self.aclose())


_dropped: set[ClosedStream] = set()  # those that the loop is about to close


def _unknown_to_the_loop(step: Callable[..., Awaitable[Any]], *args: Any) -> Awaitable[Any]:
    """Return the first step of a generator, without which the loop does not know of it."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return step(*args)
    finally:
        sys.set_asyncgen_hooks(*hooks)
