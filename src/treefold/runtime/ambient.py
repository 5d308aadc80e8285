"""The default runtime of calls made outside any Runtime: one per event loop, without a store."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

from treefold.core.errors import BlockingCallError, UsageError
from treefold.core.function import Function, RunContext
from treefold.runtime.context import Context
from treefold.runtime.loops.loop_handle import LoopHandle
from treefold.runtime.runtime import Runtime

T = TypeVar("T")


class AmbientRuntime(Runtime):
    """Serves the calls made on one loop outside any other runtime; drops a tree when it ends."""

    keeps_finished_trees = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop_handle = LoopHandle(loop, self.patience)


class _OneCallRuntime(Runtime):
    """Serves one call of ``run_sync``; the program has no reference to it."""

    keeps_finished_trees = False


_ambient: dict[asyncio.AbstractEventLoop, Context] = {}  # those of the runtimes
# Several threads may each run a loop of their own.
_ambient_lock = threading.Lock()


def current_context() -> Context:
    """Return the context of the running call, or else that of the runtime used here.

    Raises:
        UsageError: no call is active, and no event loop runs in this thread.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        # Synchronous code in a thread, perhaps the code of a call.
        active = RunContext.active.get(None)
        if isinstance(active, Context):
            return active.runtime.get_ctx() if active.has_ended else active
        raise UsageError(
            "no event loop runs here: call it in async code, or use run_sync(...) or"
            " runtime.invoke(...).result()"
        ) from None
    return context_on(loop)


def context_on(loop: asyncio.AbstractEventLoop) -> Context:
    """Return the same as ``current_context``; *loop* is the one that runs here."""
    active = RunContext.active.get(None)
    if isinstance(active, Context) and active.runtime.lives_on(loop):
        return active.runtime.get_ctx() if active.has_ended else active
    ambient = _ambient.get(loop)
    if ambient is None:
        with _ambient_lock:
            for closed in [known for known in _ambient if known.is_closed()]:
                del _ambient[closed]
            ambient = _ambient[loop] = AmbientRuntime(loop).get_ctx()
    return ambient


def run_sync(function: Function[..., T], args: Mapping[str, Any], deps: Any = None) -> T:
    """Make a call here, and block this thread until it has ended.

    Raises:
        BlockingCallError: an event loop runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise BlockingCallError(
            f"run_sync() of {function.name} would block the event loop that runs here: write"
            f" 'await {function.name}.run(...)'"
        )
    active = RunContext.active.get(None)
    if isinstance(active, Context) and not active.has_ended:
        return active.invoke(function, args, deps=deps).result()
    with _OneCallRuntime() as runtime:
        return runtime.invoke(function, args, deps=deps).result()
