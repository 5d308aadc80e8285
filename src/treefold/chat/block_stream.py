"""A stream of blocks from a turn to the code that reads it, on one event loop."""

import asyncio
from collections import deque

from treefold.chat.blocks import Block


class BlockStream:
    """A queue of blocks with one producer, the turn, and one consumer, its reader.

    ``put`` never blocks, so a slow reader does not slow down the model. Before an action that
    cannot be undone, such as a tool call, the turn awaits ``wait_until_read``. A turn that has no
    reader yet does not wait there, because it would never end.
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
        """Mark the end of the stream."""
        self._closed = True
        self._changed.set()

    @property
    def is_exhausted(self) -> bool:
        """Whether the stream is closed and all blocks were taken."""
        return self._closed and not self._blocks

    async def wait_until_read(self) -> None:
        """Wait until the reader has taken all blocks and asks for another.

        A reader that leaves its loop at the last block does not ask, so the wait is not over. If
        nothing has been read yet, return at once.
        """
        if self._has_reader:
            self._caught_up = asyncio.get_running_loop().create_future()
            await self._caught_up

    async def take(self) -> Block | None:
        """Wait for the next block and return it; return None at the end of the stream."""
        self._has_reader = True
        while not self._blocks:
            if self._caught_up is not None and not self._caught_up.done():
                self._caught_up.set_result(None)
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._blocks.popleft()
