"""One bash process, which runs command after command.

Knows how to feed it, how to tell that a command is done, and how to stop it with all that it
started. Does not know who wants the commands run, nor what they are told of them.

The shell is interactive but has no terminal: only so does an interrupt end the command and leave
the shell. Each command is the argument of an ``eval`` whose input is empty and whose output goes to
one pipe; its exit code comes through another pipe, which what it starts has not got.
"""

import asyncio
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from ramify.core.errors import CallError
from ramify.toolbox.shell.pipe import Pipe
from ramify.toolbox.shell.processes import processes_of, processes_with, send
from ramify.toolbox.shell.truncation import BoundedBytes

_MARK: Final = "RAMIFY_SHELL"
_MEANT_FOR_PEOPLE: Final = ("MAILCHECK", "PROMPT_COMMAND", "PS0", "TMOUT")
_SETUP: Final = b"set +H +o history; unset HISTFILE MAILCHECK\n"
_TICK: Final = 0.05  # seconds between two looks whether it has stopped
_LAST_WAIT: Final = 5.0  # seconds for what was killed to be gone


class Shell(asyncio.SubprocessProtocol):
    """A bash process in a session of its own, from its start to its end.

    Attributes:
        exit_code: of the last command; None while it runs, or if the shell did not outlive it.
        ended_with: the exit code of the shell itself, negative for a signal; None while it lives.
    """

    def __init__(self, max_chars: int) -> None:
        self.exit_code: int | None = None
        self.ended_with: int | None = None
        self._max_chars = max_chars
        self._printed = BoundedBytes(max_chars)
        self._answers = b""
        self._token = ""  # of the command that runs
        self._mark = f"{_MARK}={uuid4().hex}"
        self._earlier: set[int] = set()  # processes that were there before the command
        self._settled = asyncio.Event()  # the command is done, or the shell has ended
        self._output = Pipe(self._printed_more)
        self._status = Pipe(self._answered)
        self._transport: asyncio.SubprocessTransport | None = None
        self.pid = 0

    async def start(self, program: str, cwd: str, env: Mapping[str, str]) -> None:
        """Start the process."""
        kept = {name: value for name, value in env.items() if name not in _MEANT_FOR_PEOPLE}
        name, _, value = self._mark.partition("=")
        pipes = (self._output.far_end, self._status.far_end)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *(program, "--noprofile", "--norc", "-i"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # what the shell itself says between commands
                stderr=subprocess.DEVNULL,
                pass_fds=pipes,
                cwd=cwd,
                env=kept | {"PS1": "", "PS2": "", "TERM": "dumb", name: value},
                start_new_session=True,
            )
        except BaseException:
            self._output.close()
            self._status.close()
            raise
        self._output.close_far_end()
        self._status.close_far_end()
        self._write(_SETUP)

    async def run(self, command: str) -> None:
        """Run *command* and wait until it is done, or the shell has ended."""
        text = _encoded(command)
        self._earlier = processes_of(self.pid)
        self._token = uuid4().hex
        self._answers = b""
        self.exit_code = None
        self._settled.clear()
        if self.ended_with is not None:
            return
        out, status = self._output.far_end, self._status.far_end
        where = f"</dev/null >&{out} 2>&1 {out}>&- {status}>&-"
        answer = f"builtin printf '%s %s\\0' {self._token} \"$?\" >&{status}"
        # Two lines, because an error in an expansion drops what is left of the line.
        self._write(b"builtin eval " + text + f" {where}\n{answer}\n".encode())
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
            started = processes_of(self.pid) - self._earlier - {self.pid}
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
        left = processes_of(self.pid) | processes_with(self._mark)
        send(signal.SIGKILL, left)
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
            self._output.close()
            self._status.close()
            if self._transport is not None:
                self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self.pid = transport.get_pid()

    def process_exited(self) -> None:
        assert self._transport is not None
        self.ended_with = self._transport.get_returncode()
        self._settled.set()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        stdin = self._transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        stdin.write(data)

    def _printed_more(self, chunk: bytes) -> None:
        self._printed.feed(chunk)

    def _answered(self, chunk: bytes) -> None:
        self._answers += chunk
        for answer in self._answers.split(b"\0")[:-1]:
            token, _, code = answer.decode().partition(" ")
            if token == self._token:
                self.exit_code = int(code)
                self._settled.set()


def _sign_after(part: float) -> signal.Signals:
    """Return what a process is told when this part of the patience is spent."""
    if part < 0.2:
        return signal.SIGINT
    return signal.SIGTERM if part < 0.5 else signal.SIGKILL


def _encoded(command: str) -> bytes:
    """Return *command* as one word of the shell."""
    return shlex.quote(command).encode(errors="surrogateescape")
