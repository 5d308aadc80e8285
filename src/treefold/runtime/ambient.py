"""The default runtime of calls made outside any Runtime: one per event loop, without a store."""

import asyncio
import threading

from treefold.core.errors import UsageError
from treefold.core.function import RunContext
from treefold.runtime.context import Context
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.runtime import Runtime


class AmbientRuntime(Runtime):
    """Serves the calls made on one loop outside any other runtime; drops a tree when it ends."""

    keeps_finished_trees = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop_handle = LoopHandle(loop, self.patience)


_ambient: dict[asyncio.AbstractEventLoop, AmbientRuntime] = {}
# Several threads may each run a loop of their own.
_ambient_lock = threading.Lock()


def current_context() -> Context:
    """Return the context of the running call, or else that of the runtime used here.

    Raises:
        UsageError: no call is active, and no event loop runs in this thread.
    """
    active = RunContext.active.get(None)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        # Synchronous code in a thread, perhaps the code of a call.
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
            for closed in [known for known in _ambient if known.is_closed()]:
                del _ambient[closed]
            ambient = _ambient[loop] = AmbientRuntime(loop)
    return ambient.get_ctx()
