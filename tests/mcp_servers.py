"""What the tests of the MCP bridge share: servers to start, and what is left of them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import warm_python
from support import processes_in

SERVERS = Path(__file__).parent / "mcp" / "servers"
SECRET = "s3cret-key"
TOKEN = "a-token-for-tests"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}


def tools() -> list[str]:
    """Return the command of a server that has tools of every kind."""
    return warm_python.command(str(SERVERS / "tools.py"))


def bare(manner: str = "good") -> list[str]:
    """Return the command of a server that behaves like this."""
    return [sys.executable, "-S", str(SERVERS / "bare.py"), manner]


@contextmanager
def http_server(*command: str) -> Generator[tuple[str, subprocess.Popen[str]], None, None]:
    """Start a server that prints its port, and give its address."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process
        finally:
            process.kill()


def open_files() -> set[str]:
    """Return what this process has open."""
    found: set[str] = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{link.name} {os.readlink(link)}")
        except OSError:
            continue
    return found


async def until(folder: Path, command: str, count: int = 1) -> None:
    """Wait until *command* runs in *folder*, in so many processes."""
    async with asyncio.timeout(60):
        while sum(command in line for line in processes_in(folder)) < count:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)
