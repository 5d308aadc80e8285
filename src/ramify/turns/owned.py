"""An async generator that nobody but its owner closes."""

import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any, Self

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
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            first = self._stream.__anext__()
        finally:
            sys.set_asyncgen_hooks(*hooks)
        return await first

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._stream is None:
            return
        try:
            await self._stream.aclose()
        finally:
            _open.discard(self._stream)
