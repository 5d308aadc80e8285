"""Blocks on their way from a turn to whoever reads them, on the same loop."""

import asyncio
from collections import deque

from ramify.chat.blocks import Block
from ramify.runtime.home import settle


class Outbox:
    """Takes blocks as they come, and hands them out in order.

    The turn does not wait for its reader: a model is not kept waiting by a slow one, and a turn
    that nobody reads ends all the same.
    """

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._closed = False
        self._wanted: asyncio.Future[None] | None = None

    def put(self, block: Block) -> None:
        """Add a block."""
        self._blocks.append(block)
        self._wake()

    def close(self) -> None:
        """Say that there will be no more."""
        self._closed = True
        self._wake()

    @property
    def is_empty(self) -> bool:
        """Whether everything was handed out, and nothing more will come."""
        return self._closed and not self._blocks

    async def take(self) -> Block | None:
        """Return the next block when there is one; None when there will be none."""
        while not self._blocks:
            if self._closed:
                return None
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        return self._blocks.popleft()

    def _wake(self) -> None:
        if self._wanted is not None:
            settle(self._wanted)
