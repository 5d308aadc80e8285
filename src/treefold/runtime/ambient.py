"""The runtime of calls that nobody gave one: one a loop, in memory, without a past."""

import asyncio
import threading

from treefold.core.errors import UsageError
from treefold.core.function import RunContext
from treefold.runtime.context import Context
from treefold.runtime.loop_handle import LoopHandle
from treefold.runtime.runtime import Runtime


class AmbientRuntime(Runtime):
    """Serves the calls made on one loop outside any other runtime; forgets a tree when it ends."""

    keeps_finished_trees = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop_handle = LoopHandle(loop, self.patience)


_ambient: dict[asyncio.AbstractEventLoop, AmbientRuntime] = {}
_ambient_lock = threading.Lock()  # several loops, in several threads


def current_context() -> Context:
    """Return the context of the running call, or of the runtime that calls here belong to.

    Raises:
        UsageError: neither a call nor an event loop runs here.
    """
    active = RunContext.active.get(None)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # sync code, perhaps that of a call, in a thread
        if isinstance(active, Context):
            return active.runtime.get_ctx() if active.has_ended else active
        raise UsageError(
            "no event loop runs here: use runtime.invoke(...).result(), or call it in async code"
        ) from None
    if isinstance(active, Context) and active.runtime.lives_on(loop):
        return active.runtime.get_ctx() if active.has_ended else active
    ambient = _ambient.get(loop)
    if ambient is None:
        with _ambient_lock:
            for gone in [known for known in _ambient if known.is_closed()]:
                del _ambient[gone]
            ambient = _ambient[loop] = AmbientRuntime(loop)
    return ambient.get_ctx()
