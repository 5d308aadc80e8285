"""Count the functions, files and folders that four common operations pass through.

    python bench/walks.py [--rounds 25] [--json]

Counted are the calls of Python functions whose source is in the treefold package, on the thread of
the event loop (the thread that writes the journal is left out). Lambdas, comprehensions and
generator expressions count; a coroutine or generator counts once, however often it is resumed.
Functions that dataclasses generate have no source file and do not count.

    calls     how many such calls there were, a function as often as it was called
    files     in how many different source files they are
    folders   how often a call is in another folder than the call before it; folders are those
              directly below treefold, so that subfolders make no difference

What is imported, cached or created once is not counted: each walk runs once before. Timers and the
thread that writes the journal add a few calls to some rounds, so the round with the fewest calls is
reported; a journal that is reopened may still differ by a few. Compare only what was counted with
the same version of Python.
"""

import argparse
import asyncio
import dis
import gc
import json
import platform
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import treefold
from treefold import (
    AgentFunction,
    AgentOptions,
    Client,
    Function,
    Runtime,
    ToolUse,
    Turn,
    tool,
)
from treefold.testing import ScriptedModel
from treefold.toolbox import human_in_loop

PACKAGE = Path(treefold.__file__).parent


class Counts(NamedTuple):
    """What was counted in one round; rounds are compared by their calls first."""

    calls: int
    folders: int
    files: int


class Walk:
    """Records the file of each call that is made within ``recorded``."""

    def __init__(self) -> None:
        self._files: list[Path] = []

    @contextmanager
    def recorded(self) -> Generator[None]:
        """Record the calls that this thread makes in the block."""
        gc.collect()
        # A finalizer would be recorded where the collector happens to run.
        gc.disable()
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()

    def counts(self) -> Counts:
        """Return what was recorded."""
        folders = [file.parts[0] for file in self._files]
        changes = sum(a != b for a, b in pairwise(folders))
        return Counts(len(self._files), changes, len(set(self._files)))

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (file := _file_of(frame.f_code)) and _begins(frame):
            self._files.append(file)


@cache
def _file_of(code: CodeType) -> Path | None:
    """Return the path of a file of the package below its folder, and None for any other file."""
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE) if path.is_relative_to(PACKAGE) else None


def _begins(frame: FrameType) -> bool:
    return frame.f_lasti <= _first_resume(frame.f_code)


@cache
def _first_resume(code: CodeType) -> int:
    """Return where *code* begins; a coroutine or generator that is resumed is beyond it."""
    return next(found.offset for found in dis.get_instructions(code) if found.opname == "RESUME")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADDS = ToolUse("1", "add", {"a": 1, "b": 2})
ASKS = ToolUse("1", "human_in_loop", {"question": "May I?"})


def worker(function: Function, *replies: str | ToolUse) -> AgentFunction:
    """Return an agent that has one function and gets *replies* from its model."""
    return AgentFunction(
        "work",
        "Work.",
        user_prompt_template="go",
        uses=[function],
        default_model=ScriptedModel(*replies),
    )


async def turn(walk: Walk, path: Path) -> None:
    """Make a turn and run it."""
    with walk.recorded():
        result = await Turn(add, kwargs={"a": 1, "b": 2}).returning()
    assert result == 3


async def agent(walk: Walk, path: Path) -> None:
    """Call an agent that calls one tool, in a runtime with a journal."""
    function = worker(add, ADDS, "3")
    async with Runtime([function], store=path) as runtime:
        with walk.recorded():
            result = await runtime.invoke(function)
    assert result == "3"


async def client_turn(walk: Walk, path: Path) -> None:
    """Ask a client that calls one tool, and read its messages."""
    model = ScriptedModel(ADDS, "3")
    async with Client(AgentOptions("", model, tools=[add], auto_execute_tools=True)) as client:
        with walk.recorded():
            await client.query("go")
            async for _ in client.receive_messages():
                pass
    assert client.history[-1]["content"] == "3"


async def reopening(walk: Walk, path: Path) -> None:
    """Open the journal of an agent that waits for a person, answer, and let it finish."""
    async with Runtime([function := worker(human_in_loop, ASKS)], store=path) as runtime:
        runtime.invoke(function)
        while not runtime.questions():  # noqa: ASYNC110 - no event says that there is a question
            await asyncio.sleep(0.01)
    function = worker(human_in_loop, "done")
    with walk.recorded():
        async with Runtime([function], store=path) as runtime:
            [node], [question] = runtime.recover(), runtime.questions()
            runtime.answer(question.id, "yes")
            result = await node
    assert result == "done"


WALKS = {
    "a turn": turn,
    "an agent with one tool and SQLite": agent,
    "a turn of a client with one tool": client_turn,
    "reopening a journal and finishing": reopening,
}


async def measure(rounds: int, folder: Path) -> dict[str, Counts]:
    """Take each walk once for the caches and then *rounds* times; return the shortest of each."""
    found: dict[str, Counts] = {}
    for name, operation in WALKS.items():
        walks = [Walk() for _ in range(rounds + 1)]
        for number, walk in enumerate(walks):
            await operation(walk, folder / f"{operation.__name__}-{number}.db")
        found[name] = min(walk.counts() for walk in walks[1:])
    return found


def main() -> None:
    """Count, print a table or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="treefold-bench-") as folder:
        found = asyncio.run(measure(options.rounds, Path(folder)))
    if options.json:
        rows = {name: counts._asdict() for name, counts in found.items()}
        print(json.dumps({"python": platform.python_version(), "rows": rows}, indent=1))
        return
    print(f"Python {platform.python_version()}, the shortest of {options.rounds} rounds\n")
    print(f"{'walk':48}{'calls':>9}{'files':>9}{'folders':>9}")
    for name, counts in found.items():
        print(f"{name:48}{counts.calls:9}{counts.files:9}{counts.folders:9}")


if __name__ == "__main__":
    main()
