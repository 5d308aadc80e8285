"""Edits a file and is killed at a moment: ``editing_process.py FILE MOMENT``.

A moment is the number of a system call that changes files, counted from the beginning of the edit.
"""

import asyncio
import os
import signal
import sys

from treefold import Runtime
from treefold.toolbox import text_editor

CALLS = {"os.chown", "os.chmod", "os.rename", "os.remove", "fcntl.flock"}


async def main(path: str, moment: int) -> None:
    left = moment

    def count(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        if event in CALLS or (event == "open" and str(args[0]).startswith(".treefold-")):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    args = {"command": "str_replace", "path": path, "old_str": "secret", "new_str": "hidden"}
    with Runtime() as runtime:
        await runtime.invoke(text_editor, args)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
