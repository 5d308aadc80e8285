"""Waits for what must be finished, although the task that waits is cancelled."""

import asyncio
from collections.abc import Awaitable, Callable


async def wait_until(
    is_done: Callable[[], bool],
    wait: Callable[[], Awaitable[object]],
    on_cancel: Callable[[], object] | None = None,
) -> None:
    """Await ``wait()`` until *is_done*; a cancellation meanwhile is raised after that.

    Args:
        is_done: whether there is nothing left to wait for.
        wait: returns when that may have changed, and can be cancelled without harm.
        on_cancel: is called for each cancellation, for example to speed things up.
    """
    cancelled: asyncio.CancelledError | None = None
    while not is_done():
        try:
            await wait()
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    if cancelled is not None:
        raise cancelled
