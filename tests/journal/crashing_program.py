"""A program with a call that kills it, and one that does not.

``python -m journal.crashing_program run.db NAME ...`` begins the calls of those names, resumes
what is open in the journal, and ends when nothing can continue. What kills it does so until the
file ``mended`` is there.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from treefold import RunContext, Runtime, registries, tool

with registries():

    @tool(repeatable=True)
    async def look(ctx: RunContext) -> str:
        """Kill the process, unless somebody has mended that."""
        if not Path(sys.argv[1]).with_name("mended").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    @tool(uses=[look])
    async def deadly(ctx: RunContext) -> str:
        """Do what kills the process."""
        return await ctx.invoke(look)

    @tool(repeatable=True)
    async def harmless(ctx: RunContext) -> str:
        """Take longer than the other needs to kill the process."""
        await asyncio.sleep(0.05)
        return "done"


if __name__ == "__main__":
    with Runtime([deadly, harmless], store=sys.argv[1]) as runtime:
        for function in (deadly, harmless):
            if function.name in sys.argv[2:]:
                runtime.invoke(function)
