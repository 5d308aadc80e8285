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
        self._has_reader = False
        self._changed = asyncio.Event()
        self._caught_up: asyncio.Future[None] | None = None

    def put(self, block: Block) -> None:
        """Add a block."""
        self._blocks.append(block)
        self._changed.set()

    def close(self) -> None:
        """Say that there will be no more."""
        self._closed = True
        self._changed.set()

    @property
    def is_exhausted(self) -> bool:
        """Whether everything was handed out, and nothing more will come."""
        return self._closed and not self._blocks

    async def wait_until_read(self) -> None:
        """Wait until all blocks were taken, and another is asked for."""
        if self._has_reader:
            self._caught_up = asyncio.get_running_loop().create_future()
            await self._caught_up

    async def take(self) -> Block | None:
        """Return the next block when there is one; None when there will be none."""
        self._has_reader = True
        while not self._blocks:
            if self._caught_up is not None:
                settle(self._caught_up)
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._blocks.popleft()
