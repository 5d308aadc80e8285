"""What many tests need."""

import asyncio
import signal

from ramify import registries, tool

with registries():  # so that no test finds their names taken

    @tool
    async def double(n: int) -> int:
        return 2 * n

    @tool
    async def forever() -> None:
        await asyncio.Event().wait()

    @tool
    async def boom() -> None:
        raise ZeroDivisionError("oops")

    @tool
    async def step(n: int) -> int:
        return n


def heed_interrupts() -> None:
    """Undo, in a child process, that whoever runs the tests may have SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
