"""A loop whose time passes only when nobody has anything to do, and then at once."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _LeapingSelector(selectors.DefaultSelector):
    """Waits for nothing: the time that it was to wait has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing can happen any more, and somebody still waits")
        ready = super().select(0)
        if not ready:
            self.now += max(0.0, timeout)
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """What takes a minute takes no time, and a deadlock ends at the next timeout."""

    def __init__(self) -> None:
        self._leaping = _LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now


def run_leaping(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* on such a loop; the same program does the same in the same order each time."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(main)
