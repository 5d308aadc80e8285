"""A program that runs an agent on a journal and is killed while it waits for its model.

It says ``started`` first, and ends when it is told to; "done" as its second argument lets the model
answer.
"""

import sys
from typing import Any

from treefold import CodeFunction, RunContext, Runtime, ToolUse, agent
from treefold.testing import HANGS, ScriptedModel


async def fetch(ctx: RunContext, page: int) -> str:
    """Fetch a page."""
    return f"page {page}"


@agent(uses=[CodeFunction(callable=fetch)])
def read(pages: int) -> str:
    """Read some pages."""
    return f"Read {pages} pages."


async def write(ctx: RunContext) -> str:
    """Write a report."""
    return await ctx.invoke(read, {"pages": 2})


report = CodeFunction(name="report", callable=write, uses=[read])


def main(path: str, last: Any) -> None:
    calls = [ToolUse("c1", "fetch", {"page": 1}), ToolUse("c2", "fetch", {"page": 2})]
    with Runtime([report], models=ScriptedModel(calls, last), store=path) as runtime:
        print("started", flush=True)  # noqa: T201 - the test waits for it
        sys.stdin.readline()
        runtime.invoke(report).result()


if __name__ == "__main__":
    main(sys.argv[1], HANGS if len(sys.argv) < 3 else sys.argv[2])
