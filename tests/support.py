"""What many tests need."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from treefold import (
    Agent,
    CodeFunction,
    Function,
    RunContext,
    Runtime,
    StopReason,
    Tool,
    Turn,
    registries,
    tool,
)

T = TypeVar("T")

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

    @tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        return f"{at} is fine"


def heed_interrupts() -> None:
    """Undo, in a child process, that whoever runs the tests may have SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def settle() -> None:
    """Let the loop go round often enough for everything to come to rest."""
    for _ in range(20):
        await asyncio.sleep(0)


def wait(condition: Callable[[], T | None]) -> T:
    """Wait until *condition* holds, and return its value."""
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
    return found


@contextmanager
def blocked_runtime(*functions: Function, **options: Any) -> Generator[Runtime, None, None]:
    """Open a runtime, one of whose calls blocks the event loop: no other call gets on meanwhile."""
    blocked, release = threading.Event(), threading.Event()

    async def block(ctx: RunContext) -> None:
        blocked.set()
        assert release.wait(60)

    blocking = CodeFunction(callable=block)
    with Runtime([blocking, *functions], **options) as runtime:
        runtime.invoke(blocking)
        assert blocked.wait(60)
        try:
            yield runtime
        finally:
            release.set()


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of the processes whose working directory is *folder*."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " ").strip())
        except OSError:
            continue
    return sorted(line for line in found if line)


async def pairs(agent: Agent) -> list[tuple[Turn, Any]]:
    """Run *agent* to its end; return its turns with the values that they gave."""
    async with asyncio.timeout(60):
        return [pair async for pair in agent.run()]


async def values(agent: Agent) -> list[Any]:
    """Run *agent* to its end; return the values that its turns gave."""
    return [value for _, value in await pairs(agent)]


def travel(data: dict[str, Any]) -> dict[str, Any]:
    """Send *data* through JSON, as a file would."""
    return json.loads(json.dumps(data))


def watch_tool(made: Tool[Any, Any]) -> list[tuple[str, Any]]:
    """Record what the hooks of *made* are told, in order."""
    seen: list[tuple[str, Any]] = []

    @made.before_invoke
    async def before(**kwargs: Any) -> None:
        seen.append(("before", kwargs))

    @made.on_yield
    async def each(value: Any) -> None:
        seen.append(("yield", value))

    @made.after_invoke
    async def after(result: Any) -> None:
        seen.append(("after", result))

    @made.on_error
    async def failed(**kwargs: Any) -> None:
        seen.append(("error", kwargs))

    return seen


def watch_turn(turn: Turn) -> list[tuple[Any, ...]]:
    """Record what the hooks of *turn* are told, in order."""
    told: list[tuple[Any, ...]] = []

    @turn.before_run
    async def before(turn: Turn) -> None:
        told.append(("before_run", turn))

    @turn.after_run
    async def after(turn: Turn, output: Any) -> None:
        told.append(("after_run", turn, output))

    @turn.on_timeout
    async def late(turn: Turn) -> None:
        told.append(("on_timeout", turn))

    @turn.on_error
    async def failed(turn: Turn, exc: Exception) -> None:
        told.append(("on_error", turn, exc))

    @turn.on_complete
    async def complete(turn: Turn, stop_reason: StopReason) -> None:
        told.append(("on_complete", turn, stop_reason))

    return told
