"""One bash process, which runs commands one after the other.

Knows how to send it a command, how to detect that the command is done, and how to stop the command
with all that it started. Does not know its callers, nor how results are presented to them.

The shell is interactive but has no terminal: only then does an interrupt end the command and not
the shell. The features for people are off: line editing would take control characters of a command
for keys, and a sourced file is not interactive, so no job numbers are printed. Each command is
written to such a file, as the argument of an ``eval`` whose input is empty and whose output goes to
one pipe. Its exit code arrives through another pipe, which the processes that it starts do not
inherit.
"""

import asyncio
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from treefold.core.errors import CallError
from treefold.toolbox.shell.child_process import ChildProcess
from treefold.toolbox.shell.launch import Launch, launch
from treefold.toolbox.shell.output import BoundedBytes
from treefold.toolbox.shell.pipe import Pipe, ScriptFile
from treefold.toolbox.shell.processes import (
    descendants_of,
    processes_of,
    processes_with,
    send_signal,
)

_MARKER: Final = "TREEFOLD_SHELL"
_OPTIONS: Final = ("--noprofile", "--norc", "--noediting", "-i")
_SETUP: Final = b"set +H +o history; unset HISTFILE MAILCHECK\n"
_RESET: Final = "builtin set +eu +o pipefail"  # so that these options last for one command
_POLL_INTERVAL: Final = 0.05  # seconds between checks whether a command has stopped
_KILL_TIMEOUT: Final = 5.0  # seconds within which killed processes must be gone


class Shell:
    """A bash process in a session of its own, from start to exit.

    Attributes:
        exit_code: of the last command; None while it runs, or if the shell ended with it.
        returncode: of the shell itself, negative for a signal; None while it is alive.
        pid: of the shell; 0 before it has started.
    """

    def __init__(self, max_chars: int) -> None:
        self.exit_code: int | None = None
        self.returncode: int | None = None
        self.pid = 0
        self._max_chars = max_chars
        self._captured = BoundedBytes(max_chars)
        self._partial_record = b""
        self._token = ""  # of the command that runs
        self._marker = f"{_MARKER}={uuid4().hex}"
        self._is_supervised = False
        self._supervisor: int | None = None
        # Reported by the supervisor when no process of the shell is left.
        self._reported_returncode: int | None = None
        self._existing: set[int] = set()  # processes that the command did not start
        self._started = asyncio.Event()  # the pid is known, or the process has ended
        self._done = asyncio.Event()  # the command is done, or the shell has ended
        self._output = Pipe(self._receive_output)
        self._status = Pipe(self._receive_status)
        self._script = ScriptFile()
        self._process: ChildProcess | None = None
        self._is_closed = False

    async def start(self, program: str, cwd: str, env: Mapping[str, str]) -> None:
        """Start the process."""
        name, _, value = self._marker.partition("=")
        own = {"PS1": "", "PS2": "", "TERM": "dumb", name: value}
        launch_plan = launch([program, *_OPTIONS], {**env, **own}, self._status.write_fd)
        self._is_supervised = launch_plan.is_supervised
        try:
            await self._start(launch_plan, cwd)
        except BaseException:
            self.kill()
            self._close()
            raise

    async def _start(self, launch_plan: Launch, cwd: str) -> None:
        self._process = ChildProcess(
            launch_plan.command,
            self._process_exited,
            stdout=subprocess.DEVNULL,  # of the shell itself, between commands
            stderr=subprocess.DEVNULL,
            pass_fds=(self._output.write_fd, self._status.write_fd, self._script.fd),
            cwd=cwd,
            env=launch_plan.env,
        )
        if launch_plan.is_supervised:
            self._supervisor = self._process.pid
        else:
            self.pid = self._process.pid
            self._started.set()
        self._output.close_write_end()
        self._status.close_write_end()
        self._write(launch_plan.preamble + _SETUP)
        await self._started.wait()
        if not self.pid:
            raise CallError(
                f"bash cannot be started: its supervisor ended with exit code {self.returncode}"
            )

    async def run(self, command: str) -> None:
        """Run *command* and wait until it is done or the shell has ended."""
        text = _quoted(command)
        self._existing = self._processes()
        self._token = uuid4().hex
        self.exit_code = None
        self._done.clear()
        if self.returncode is not None:
            return
        out, status, script = self._output.write_fd, self._status.write_fd, self._script.fd
        where = f"</dev/null >&{out} 2>&1 {out}>&- {status}>&- {script}>&-"
        self._script.write(b"builtin eval " + text + f" {where}\n".encode())
        report_exit = f"builtin printf '%s %s\\0' {self._token} \"$?\" >&{status}"
        # Two lines, because an error in an expansion discards the rest of its line. The outer eval
        # makes the shell interactive again when an interrupt ends the sourced file early.
        source = f"builtin eval 'builtin source /dev/fd/{script}'"
        self._write(f"{source}\n{report_exit}; {_RESET}\n".encode())
        await self._done.wait()

    def take_output(self) -> BoundedBytes:
        """Return the output since the last call, including that of background jobs."""
        self._output.drain()
        taken, self._captured = self._captured, BoundedBytes(self._max_chars)
        return taken

    async def interrupt(self, grace: float) -> bool:
        """Stop the command and all that it started; return whether the shell survived.

        Its processes get SIGINT, after a fifth of the *grace* seconds SIGTERM, and after half of
        them SIGKILL.
        """
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        signalled: set[tuple[signal.Signals, int]] = set()
        while (spent := loop.time() - started_at) < grace:
            started = self._new_processes()
            if self._done.is_set() and not started:
                break
            signum = _signal_after(spent / grace)
            if not self._done.is_set():
                send_signal(signal.SIGINT, [self.pid])
            send_signal(signum, [pid for pid in started if (signum, pid) not in signalled])
            signalled.update((signum, pid) for pid in started)
            await asyncio.sleep(_POLL_INTERVAL)
        return self.exit_code is not None and self.returncode is None

    def kill(self) -> bool:
        """Kill the shell and all that it ever started; return whether any process was left."""
        if self._reported_returncode is not None or self._process is None:
            return False
        left = self._processes()
        if self.pid and (not self._is_supervised or self.returncode is not None):
            left |= processes_of(self.pid) | processes_with(self._marker)
        send_signal(signal.SIGKILL, left)
        # The supervisor kills what was started meanwhile.
        if self._supervisor is not None and self.returncode is None:
            send_signal(signal.SIGTERM, [self._supervisor])
            send_signal(signal.SIGCONT, [self._supervisor])  # a command may have stopped it
        return bool(left)

    async def aclose(self) -> None:
        """Kill the shell and all that it started, and wait until they are gone."""
        try:
            async with asyncio.timeout(_KILL_TIMEOUT):
                while self.kill() or self.returncode is None:  # noqa: ASYNC110 - no event exists
                    await asyncio.sleep(_POLL_INTERVAL / 5)
        except TimeoutError:
            raise CallError(f"the processes of shell {self.pid} cannot be killed") from None
        finally:
            self._output.drain()
            self._close()

    def _process_exited(self) -> None:
        assert self._process is not None
        self._status.drain()
        code = self._process.returncode
        self.returncode = code if self._reported_returncode is None else self._reported_returncode
        self._started.set()
        self._done.set()
        if self._is_closed:
            self._process.close()

    def _new_processes(self) -> set[int]:
        """Return what the command has started, without what earlier jobs start meanwhile."""
        earlier = self._existing - {self.pid}
        if self._supervisor is not None:
            return descendants_of(self._supervisor, excluding=earlier) - {self.pid}
        return self._processes() - earlier - {self.pid}

    def _processes(self) -> set[int]:
        """Return the processes of the shell that are cheap to find, including itself."""
        if self._supervisor is not None:
            return descendants_of(self._supervisor)
        return processes_of(self.pid) if self.pid else set()

    def _close(self) -> None:
        self._output.close()
        self._status.close()
        self._script.close()
        self._is_closed = True
        if self._process is None:
            return
        if self._is_supervised and self.returncode is None:
            # Closing the process would kill the supervisor before it has killed its children.
            self._process.stdin.close()
        else:
            self._process.close()

    def _write(self, data: bytes) -> None:
        assert self._process is not None
        self._process.stdin.write(data)

    def _receive_output(self, chunk: bytes) -> None:
        self._captured.feed(chunk)

    def _receive_status(self, chunk: bytes) -> None:
        *records, self._partial_record = (self._partial_record + chunk).split(b"\0")
        for record in records:
            kind, _, value = record.decode().partition(" ")
            if kind == "shell":
                self.pid = int(value)
                self._started.set()
            elif kind == "ended":
                self._reported_returncode = int(value)
            elif kind == self._token:
                self.exit_code = int(value)
                self._done.set()


def _signal_after(part: float) -> signal.Signals:
    """Return the signal to send when this part of the grace period has passed."""
    if part < 0.2:
        return signal.SIGINT
    return signal.SIGTERM if part < 0.5 else signal.SIGKILL


def _quoted(command: str) -> bytes:
    """Return *command* quoted as one word of the shell."""
    return shlex.quote(command).encode(errors="surrogateescape")
