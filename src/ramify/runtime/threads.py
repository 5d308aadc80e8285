"""Run sync code beside the loop."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run *function* in a thread of its own, with the caller's context variables.

    Each call has its own thread, because sync functions that wait for each other would exhaust any
    pool. Threads are daemons: Python cannot stop one, so a cancelled call leaves it to end by
    itself, and it must not keep the process alive.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        elif isinstance(error, StopIteration):  # a future refuses it
            done.set_exception(RuntimeError("a function run in a thread raised StopIteration"))
        else:
            done.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as caught:  # noqa: BLE001 - it belongs to whoever awaits
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop has closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="ramify worker", daemon=True).start()
    return await done
