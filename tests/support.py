"""Functions that many tests call."""

import asyncio

from ramify import tool


@tool
async def double(n: int) -> int:
    return 2 * n


@tool
async def forever() -> None:
    await asyncio.Event().wait()


@tool
async def boom() -> None:
    raise ZeroDivisionError("oops")
