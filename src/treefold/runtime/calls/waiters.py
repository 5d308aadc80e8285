"""The callbacks and the code that wait for a call to end, on any loop or thread."""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any

from treefold.core.errors import ClosedError
from treefold.runtime.loops.loop_handle import LoopHandle, settle, threadsafe_resolver

Wake = Callable[[], object]


class Waiters:
    """Those who wait for one call; ``add``, ``remove`` and ``wake`` run on the runtime's loop."""

    __slots__ = ("_callbacks", "_loop_handle", "are_woken")

    def __init__(self, loop_handle: LoopHandle) -> None:
        self._loop_handle = loop_handle
        # A dict keeps the order and makes removal cheap. The value is True for a caller.
        self._callbacks: dict[Wake, bool] = {}
        self.are_woken = False  # whether the call has ended

    def add(self, wake: Wake, *, is_caller: bool = False) -> None:
        """Call *wake* when the call ends, or at once if it has ended."""
        if self.are_woken:
            wake()
        else:
            self._callbacks[wake] = is_caller

    def remove(self, wake: Wake) -> None:
        """Remove a callback."""
        self._callbacks.pop(wake, None)

    def wake(self) -> None:
        """Call all callbacks, each once."""
        for wake in tuple(self._callbacks):
            wake()
            self._callbacks.pop(wake, None)

    def block(
        self, timeout: float | None, on_added: Callable[[], None], *, is_caller: bool
    ) -> bool:
        """Block this thread until the call has ended; return False after *timeout*.

        *on_added* is called once the loop is going to know of the one who waits.
        """
        ended, is_over = threading.Event(), False
        self._loop_handle.run_soon(self._add, ended.set, is_caller)
        on_added()
        try:
            is_over = self._loop_handle.wait(ended, timeout)
        finally:
            if not is_over:
                with suppress(ClosedError):
                    self._loop_handle.run_soon(self.remove, ended.set)
        return is_over

    def wait(self, abandon: Callable[[], None] | None) -> Generator[Any, None, None]:
        """Wait on the running loop until the call has ended.

        A caller passes *abandon*, which is called on the runtime's loop if the caller is cancelled
        meanwhile and no other caller waits.
        """
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        if loop is self._loop_handle.loop:
            wake = partial(settle, ended)
            self.add(wake, is_caller=abandon is not None)
        else:
            wake = threadsafe_resolver(ended)
            self._loop_handle.run_soon(self._add, wake, abandon is not None)
        try:
            yield from ended
        except asyncio.CancelledError:
            with suppress(ClosedError):
                self._loop_handle.run_soon(self._leave, wake, abandon)
            raise

    def _add(self, wake: Wake, is_caller: bool) -> None:  # noqa: FBT001 - passed through run_soon
        self.add(wake, is_caller=is_caller)

    def _leave(self, wake: Wake, abandon: Callable[[], None] | None) -> None:
        was_caller = self._callbacks.pop(wake, False)
        if was_caller and abandon is not None and not any(self._callbacks.values()):
            abandon()
