"""Survey the Python files of a folder: a tree of calls, with a queue of turns in the middle.

treefold run examples/survey.py:survey --arg folder=src/treefold/core

With --store survey.db it can be killed at any moment, and is resumed when it is started again.
"""

import ast
import asyncio
from pathlib import Path

from treefold import Agent, ContextItem, ContextQueue, RunContext, Turn, registries, tool


@tool(repeatable=True)
async def measure(path: str) -> dict[str, int]:
    """Count lines and functions of one file.

    Args:
        path: a Python file.
    """
    text = await asyncio.to_thread(Path(path).read_text, encoding="utf-8")
    tree = await asyncio.to_thread(ast.parse, text)
    functions = sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree)
    )
    return {"lines": len(text.splitlines()), "functions": functions}


@tool(repeatable=True)
async def note(path: str, lines: int) -> ContextItem:
    """Remember a file and how long it is."""
    return ContextItem({"path": path, "lines": lines})


@tool(repeatable=True)
async def name_longest(seen: ContextQueue) -> str:
    """Say which of the remembered files is the longest."""
    longest = max(seen.items, key=lambda item: item.content["lines"])
    return str(longest.content["path"])


@tool(uses=[measure])
async def survey(ctx: RunContext, folder: str = "src") -> str:
    """Measure every Python file below a folder, all at once, and name the longest."""
    found = await asyncio.to_thread(lambda: sorted(Path(folder).rglob("*.py")))
    paths = [str(path) for path in found]
    if not paths:
        raise FileNotFoundError(f"there is no Python file below {folder}")
    first = ctx.invoke(measure, {"path": paths[0]})
    rest = [ctx.invoke(measure, {"path": path}, tied_with=first) for path in paths[1:]]
    sizes = [await node for node in [first, *rest]]

    with registries():  # the name "clerk" is free again afterwards
        clerk = Agent("clerk", "Keeps the books", [note, name_longest], None, ContextQueue(1000))
    for path, size in zip(paths, sizes, strict=True):
        await clerk.put(Turn(note, kwargs={"path": path, "lines": size["lines"]}))
    await clerk.put(Turn(name_longest))
    longest = [value async for _, value in clerk.run()][-1]

    lines = sum(size["lines"] for size in sizes)
    functions = sum(size["functions"] for size in sizes)
    return f"{len(paths)} files, {lines} lines, {functions} functions; the longest is {longest}"
