"""Blocks on their way from a turn to whoever reads them, on the same loop."""

import asyncio
from collections import deque

from treefold.chat.blocks import Block
from treefold.runtime.loop_handle import settle


class BlockStream:
    """Takes blocks as they come, and hands them out in order.

    Text does not wait for its reader, so that a slow one does not keep the model waiting. Before
    something is done that cannot be undone, ``read`` waits until the reader has seen it coming; a
    turn that nobody has begun to read does not wait, or it would never end.
    """

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._closed = False
        self._is_read = False
        self._news = asyncio.Event()
        self._has_read: asyncio.Future[None] | None = None

    def put(self, block: Block) -> None:
        """Add a block."""
        self._blocks.append(block)
        self._news.set()

    def close(self) -> None:
        """Say that there will be no more."""
        self._closed = True
        self._news.set()

    @property
    def is_empty(self) -> bool:
        """Whether everything was handed out, and nothing more will come."""
        return self._closed and not self._blocks

    async def read(self) -> None:
        """Wait until all blocks were taken, and another is asked for."""
        if self._is_read:
            self._has_read = asyncio.get_running_loop().create_future()
            await self._has_read

    async def take(self) -> Block | None:
        """Return the next block when there is one; None when there will be none."""
        self._is_read = True
        while not self._blocks:
            if self._has_read is not None:
                settle(self._has_read)
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        return self._blocks.popleft()
