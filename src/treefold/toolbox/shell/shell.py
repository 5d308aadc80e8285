"""One bash process, which runs command after command.

Knows how to feed it, how to tell that a command is done, and how to stop it with all that it
started. Does not know who wants the commands run, nor what they are told of them.

The shell is interactive but has no terminal: only so does an interrupt end the command and leave
the shell. What only people want of an interactive shell is kept out: line editing would take
control characters of a command for keys, and a file that is sourced is not interactive, so job
numbers are not printed. Such a file holds each command, as the argument of an ``eval`` whose input
is empty and whose output goes to one pipe; its exit code comes through another pipe, which what it
starts has not got.
"""

import asyncio
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from treefold.core.errors import CallError
from treefold.toolbox.shell.launch import Launch, launch
from treefold.toolbox.shell.pipe import Pipe, ScriptFile
from treefold.toolbox.shell.processes import descendants_of, processes_of, processes_with, send
from treefold.toolbox.shell.truncation import BoundedBytes

_MARK: Final = "TREEFOLD_SHELL"
_OPTIONS: Final = ("--noprofile", "--norc", "--noediting", "-i")
_SETUP: Final = b"set +H +o history; unset HISTFILE MAILCHECK\n"
_RESET: Final = "builtin set +eu +o pipefail"  # what one command asked for, not the next
_TICK: Final = 0.05  # seconds between two looks whether it has stopped
_LAST_WAIT: Final = 5.0  # seconds for what was killed to be gone


class Shell(asyncio.SubprocessProtocol):
    """A bash process in a session of its own, from its start to its end.

    Attributes:
        exit_code: of the last command; None while it runs, or if the shell did not outlive it.
        ended_with: the exit code of the shell itself, negative for a signal; None while it lives.
        pid: of the shell; 0 before it has started.
    """

    def __init__(self, max_chars: int) -> None:
        self.exit_code: int | None = None
        self.ended_with: int | None = None
        self.pid = 0
        self._max_chars = max_chars
        self._printed = BoundedBytes(max_chars)
        self._records = b""
        self._token = ""  # of the command that runs
        self._mark = f"{_MARK}={uuid4().hex}"
        self._is_supervised = False
        self._supervisor: int | None = None
        self._reported_end: int | None = None  # by the supervisor: nothing of the shell is left
        self._earlier: set[int] = set()  # processes that were there before the command
        self._started = asyncio.Event()  # its pid is known, or it has ended
        self._settled = asyncio.Event()  # the command is done, or the shell has ended
        self._output = Pipe(self._printed_more)
        self._status = Pipe(self._reported)
        self._script = ScriptFile()
        self._transport: asyncio.SubprocessTransport | None = None
        self._is_closed = False

    async def start(self, program: str, cwd: str, env: Mapping[str, str]) -> None:
        """Start the process."""
        name, _, value = self._mark.partition("=")
        own = {"PS1": "", "PS2": "", "TERM": "dumb", name: value}
        how = launch([program, *_OPTIONS], {**env, **own}, self._status.far_end)
        self._is_supervised = how.is_supervised
        try:
            await self._start(how, cwd)
        except BaseException:
            self.kill()
            self._close()
            raise

    async def _start(self, how: Launch, cwd: str) -> None:
        await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            *how.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # what the shell itself says between commands
            stderr=subprocess.DEVNULL,
            pass_fds=(self._output.far_end, self._status.far_end, self._script.fd),
            cwd=cwd,
            env=how.env,
            start_new_session=True,
        )
        self._output.close_far_end()
        self._status.close_far_end()
        self._write(how.preamble + _SETUP)
        await self._started.wait()
        if not self.pid:
            raise CallError(
                f"bash cannot be started: its supervisor ended with exit code {self.ended_with}"
            )

    async def run(self, command: str) -> None:
        """Run *command* and wait until it is done, or the shell has ended."""
        text = _encoded(command)
        self._earlier = self._living()
        self._token = uuid4().hex
        self.exit_code = None
        self._settled.clear()
        if self.ended_with is not None:
            return
        out, status, script = self._output.far_end, self._status.far_end, self._script.fd
        where = f"</dev/null >&{out} 2>&1 {out}>&- {status}>&- {script}>&-"
        self._script.write(b"builtin eval " + text + f" {where}\n".encode())
        answer = f"builtin printf '%s %s\\0' {self._token} \"$?\" >&{status}"
        # Two lines, because an error in an expansion drops what is left of the line. The outer
        # eval has the shell interactive again when an interrupt ends the file in the middle.
        source = f"builtin eval 'builtin source /dev/fd/{script}'"
        self._write(f"{source}\n{answer}; {_RESET}\n".encode())
        await self._settled.wait()

    def take_output(self) -> BoundedBytes:
        """Return what was printed since the last time, by background jobs too."""
        self._output.drain()
        taken, self._printed = self._printed, BoundedBytes(self._max_chars)
        return taken

    async def interrupt(self, patience: float) -> bool:
        """Stop the command and all that it started; return whether the shell is left.

        Its processes are interrupted, asked to end after a fifth of *patience* and killed after
        the second half of it has begun.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        told: set[tuple[signal.Signals, int]] = set()
        while (spent := loop.time() - begun) < patience:
            started = self._started_since()
            if self._settled.is_set() and not started:
                break
            sign = _sign_after(spent / patience)
            if not self._settled.is_set():
                send(signal.SIGINT, [self.pid])
            send(sign, [pid for pid in started if (sign, pid) not in told])
            told.update((sign, pid) for pid in started)
            await asyncio.sleep(_TICK)
        return self.exit_code is not None and self.ended_with is None

    def kill(self) -> bool:
        """Kill the shell and all that it ever started; return whether there was anything left."""
        if self._reported_end is not None or self._transport is None:
            return False
        left = self._living()
        if self.pid and (not self._is_supervised or self.ended_with is not None):
            left |= processes_of(self.pid) | processes_with(self._mark)
        send(signal.SIGKILL, left)
        # A supervisor kills what was started meanwhile. Not transport.terminate(): that would reap
        # a process that has ended, before its exit is noticed.
        if self._supervisor is not None and self.ended_with is None:
            send(signal.SIGTERM, [self._supervisor])
        return bool(left)

    async def aclose(self) -> None:
        """Kill all there is, and wait until it is gone."""
        try:
            async with asyncio.timeout(_LAST_WAIT):
                while self.kill() or self.ended_with is None:  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(_TICK / 5)
        except TimeoutError:
            raise CallError(f"the processes of shell {self.pid} cannot be killed") from None
        finally:
            self._output.drain()
            self._close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        if self._is_supervised:
            self._supervisor = transport.get_pid()
        else:
            self.pid = transport.get_pid()
            self._started.set()

    def process_exited(self) -> None:
        assert self._transport is not None
        self._status.drain()
        code = self._transport.get_returncode()
        self.ended_with = code if self._reported_end is None else self._reported_end
        self._started.set()
        self._settled.set()
        if self._is_closed:
            self._transport.close()

    def _started_since(self) -> set[int]:
        """Return what the command has started, and not what earlier jobs start meanwhile."""
        earlier = self._earlier - {self.pid}
        if self._supervisor is not None:
            return descendants_of(self._supervisor, without=earlier) - {self.pid}
        return self._living() - earlier - {self.pid}

    def _living(self) -> set[int]:
        """Return the processes of the shell that are easily found, itself included."""
        if self._supervisor is not None:
            return descendants_of(self._supervisor)
        return processes_of(self.pid) if self.pid else set()

    def _close(self) -> None:
        self._output.close()
        self._status.close()
        self._script.close()
        self._is_closed = True
        if self._transport is None:
            return
        if self._is_supervised and self.ended_with is None:
            # Closing the transport would kill the supervisor before it has killed the others.
            self._stdin().close()
        else:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        self._stdin().write(data)

    def _stdin(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        stdin = self._transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        return stdin

    def _printed_more(self, chunk: bytes) -> None:
        self._printed.feed(chunk)

    def _reported(self, chunk: bytes) -> None:
        *records, self._records = (self._records + chunk).split(b"\0")
        for record in records:
            kind, _, value = record.decode().partition(" ")
            if kind == "shell":
                self.pid = int(value)
                self._started.set()
            elif kind == "ended":
                self._reported_end = int(value)
            elif kind == self._token:
                self.exit_code = int(value)
                self._settled.set()


def _sign_after(part: float) -> signal.Signals:
    """Return what a process is told when this part of the patience is spent."""
    if part < 0.2:
        return signal.SIGINT
    return signal.SIGTERM if part < 0.5 else signal.SIGKILL


def _encoded(command: str) -> bytes:
    """Return *command* as one word of the shell."""
    return shlex.quote(command).encode(errors="surrogateescape")
