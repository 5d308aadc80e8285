"""The shell session of one caller, which outlives the shell processes that it starts."""

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
from treefold.toolbox.shell.output import BoundedBytes
from treefold.toolbox.shell.shell import Shell

_STOP_TIMEOUT: Final = 2.0  # seconds that a command has to stop after its timeout
_CANCEL_TIMEOUT: Final = 0.5  # seconds that it has after it was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The outcome of one command.

    Attributes:
        output: its output.
        exit_code: None if it timed out, or the shell did not outlive it.
        timed_out: whether it was stopped because it took too long.
        shell_returncode: the exit code of the shell, if it ended too.
        restart_reason: why a new shell had to replace an earlier one for this command, if so.
    """

    output: BoundedBytes
    exit_code: int | None
    timed_out: bool
    shell_returncode: int | None
    restart_reason: str


class ShellSession:
    """Runs commands one at a time, in the same shell for as long as it lives."""

    def __init__(
        self, max_chars: int, cwd: str | os.PathLike[str] | None, env: Mapping[str, str]
    ) -> None:
        self._max_chars = max_chars
        self._cwd = cwd
        self._env = env
        self._shell: Shell | None = None
        self._restart_reason = ""  # why the last shell is gone
        self._lock = asyncio.Lock()

    async def run(self, command: str, seconds: float) -> CommandResult:
        """Run *command* after those before it; *seconds* limits this command alone."""
        async with self._lock:
            shell = await self._ensure_shell()
            restart_reason, self._restart_reason = self._restart_reason, ""
            timed_out = False
            try:
                async with asyncio.timeout(seconds):
                    await shell.run(command)
            except TimeoutError:
                timed_out = True
                await self._stop(shell, _STOP_TIMEOUT, "the last command did not stop in time")
            except asyncio.CancelledError:
                await self._stop(shell, _CANCEL_TIMEOUT, "the last command was cancelled")
                raise
            if self._shell is not None and shell.returncode is not None:
                await self._discard(
                    f"the last command ended it ({describe_exit(shell.returncode)})"
                )
            return CommandResult(
                output=shell.take_output(),
                exit_code=None if timed_out else shell.exit_code,
                timed_out=timed_out,
                shell_returncode=shell.returncode,
                restart_reason=restart_reason,
            )

    async def restart(self) -> None:
        """Kill the shell and all that it started; the next command gets a new one."""
        async with self._lock:
            await self._discard("")
            self._restart_reason = ""

    async def aclose(self) -> None:
        """Kill the shell and all that it started."""
        await self._discard("it was closed")

    async def _ensure_shell(self) -> Shell:
        if self._shell is not None and self._shell.returncode is not None:
            await self._discard(f"it ended on its own ({describe_exit(self._shell.returncode)})")
        if self._shell is None:
            env = environment(self._env)
            program, folder = _find_bash(env), _checked_folder(self._cwd)
            shell = Shell(self._max_chars)
            await shell.start(program, folder, env)
            self._shell = shell
        return self._shell

    async def _stop(self, shell: Shell, grace: float, reason: str) -> None:
        try:
            if await shell.interrupt(grace):
                return
        except asyncio.CancelledError:
            shell.kill()
            raise
        await self._discard(reason)

    async def _discard(self, reason: str) -> None:
        shell, self._shell = self._shell, None
        self._restart_reason = reason
        if shell is not None:
            try:
                await shell.aclose()
            except asyncio.CancelledError:
                shell.kill()
                raise


def describe_exit(code: int) -> str:
    """Return in words how a process with this exit code ended."""
    if code >= 0:
        return f"exit code {code}"
    names = {int(signum): signum.name for signum in signal.Signals}
    return f"killed by {names.get(-code, f'signal {-code}')}"


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
        raise UsageError(f"bash cannot start in {str(folder)!r}: set Bash(cwd=...) to a folder")
    return str(folder)
