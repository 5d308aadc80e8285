"""The shell of one caller: always there, whatever happens to the process behind it."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from treefold.core.errors import UsageError
from treefold.toolbox.shell.launch import environment
from treefold.toolbox.shell.shell import Shell
from treefold.toolbox.shell.truncation import BoundedBytes

_PATIENCE: Final = 2.0  # seconds that a command has to stop, after its timeout
_NO_PATIENCE: Final = 0.5  # and after it was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What became of one command.

    Attributes:
        printed: its output.
        exit_code: None if it timed out, or the shell did not outlive it.
        timed_out: whether it was stopped because it took too long.
        shell_ended: the exit code of the shell, if that ended too.
        lost: why this was the first command of a new shell, if another was there before.
    """

    printed: BoundedBytes
    exit_code: int | None
    timed_out: bool
    shell_ended: int | None
    lost: str


class ShellSession:
    """Runs commands one at a time, in one shell as long as that lives."""

    def __init__(
        self, max_chars: int, cwd: str | os.PathLike[str] | None, env: Mapping[str, str] | None
    ) -> None:
        self._max_chars = max_chars
        self._cwd = cwd
        self._env = env
        self._shell: Shell | None = None
        self._lost = ""  # why there is no shell, if there was one
        self._turn = asyncio.Lock()

    async def run(self, command: str, seconds: float) -> Ran:
        """Run *command* when those before it are done; the *seconds* are for it alone."""
        async with self._turn:
            shell = await self._running_shell()
            lost, self._lost = self._lost, ""
            timed_out = False
            try:
                async with asyncio.timeout(seconds):
                    await shell.run(command)
            except TimeoutError:
                timed_out = True
                await self._stop(shell, _PATIENCE, "the last command did not stop in time")
            except asyncio.CancelledError:
                await self._stop(shell, _NO_PATIENCE, "the last command was cancelled")
                raise
            if self._shell is not None and shell.ended_with is not None:
                await self._drop(f"the last command ended it ({ending(shell.ended_with)})")
            return Ran(
                printed=shell.take_output(),
                exit_code=None if timed_out else shell.exit_code,
                timed_out=timed_out,
                shell_ended=shell.ended_with,
                lost=lost,
            )

    async def restart(self) -> None:
        """Kill the shell and what it started; the next command has a new one."""
        async with self._turn:
            await self._drop("")
            self._lost = ""

    async def aclose(self) -> None:
        """Kill the shell and what it started."""
        await self._drop("it was closed")

    async def _running_shell(self) -> Shell:
        if self._shell is not None and self._shell.ended_with is not None:
            await self._drop(f"it ended by itself ({ending(self._shell.ended_with)})")
        if self._shell is None:
            env = environment(self._env)
            program, folder = _find_bash(env), _checked_folder(self._cwd)
            shell = Shell(self._max_chars)
            await shell.start(program, folder, env)
            self._shell = shell
        return self._shell

    async def _stop(self, shell: Shell, patience: float, why: str) -> None:
        try:
            if await shell.interrupt(patience):
                return
        except asyncio.CancelledError:
            shell.kill()
            raise
        await self._drop(why)

    async def _drop(self, why: str) -> None:
        shell, self._shell = self._shell, None
        self._lost = why
        if shell is not None:
            try:
                await shell.aclose()
            except asyncio.CancelledError:
                shell.kill()
                raise


def ending(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    known = {int(sign): sign.name for sign in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"


def _find_bash(env: Mapping[str, str]) -> str:
    if os.name != "posix":
        raise UsageError("the tool 'bash' needs Linux or macOS; on Windows run the program in WSL")
    found = shutil.which("bash", path=env.get("PATH"))
    if found is None:
        where = env.get("PATH", os.defpath)
        raise UsageError(f"there is no program 'bash' in {where}; install it, or set PATH")
    return found


def _checked_folder(cwd: str | os.PathLike[str] | None) -> str:
    folder = Path.cwd() if cwd is None else Path(cwd)
    if not folder.is_dir():
        raise UsageError(f"bash cannot start in {str(folder)!r}: give Bash(cwd=...) a folder")
    return str(folder)
