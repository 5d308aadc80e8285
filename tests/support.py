"""Functions that many tests call."""

import asyncio

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
