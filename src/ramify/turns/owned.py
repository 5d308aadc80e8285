"""An async generator that nobody but its owner closes."""

import sys
from collections.abc import AsyncGenerator
from typing import Any

_open: set[AsyncGenerator[Any, None]] = set()  # so that none is garbage together with its owner


class OwnedStream:
    """A generator that another generator iterates over, and closes when it ends itself.

    The event loop closes generators that were dropped, and at its end all that are left, in any
    order. Where one iterates over another, it would close the inner one under the outer. So it is
    not told of the inner one, which otherwise happens at the first step.
    """

    def __init__(self, stream: AsyncGenerator[Any, None]) -> None:
        self._stream = stream

    async def next(self) -> Any:
        """Return the next value, or raise StopAsyncIteration."""
        if self._stream in _open:
            return await anext(self._stream)
        _open.add(self._stream)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            first = self._stream.__anext__()
        finally:
            sys.set_asyncgen_hooks(*hooks)
        return await first

    async def close(self) -> None:
        """End the generator, wherever it is."""
        try:
            await self._stream.aclose()
        finally:
            _open.discard(self._stream)
