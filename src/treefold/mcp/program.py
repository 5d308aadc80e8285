"""A server that is a program of ours: started for one connection, and ended with all it started."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from mcp.client.stdio import get_default_environment

from treefold.core.errors import UsageError
from treefold.mcp.errors import McpConnectionError
from treefold.mcp.wire import Incoming, Outgoing
from treefold.toolbox.shell.output import plain_text
from treefold.toolbox.shell.pipe import Pipe
from treefold.toolbox.shell.processes import processes_of, processes_with, send_signal
from treefold.toolbox.shell.session import describe_exit

_MARK: Final = "TREEFOLD_MCP"
_FULL: Final = 1 << 20  # bytes that wait to be read before it has to wait
_TAIL: Final = 2000  # bytes of its stderr that are kept
_LAST_WORDS: Final = 0.5  # seconds that its output may be held open by others when it has ended
_TO_LEAVE: Final = 2.0  # seconds to end by itself when its input ends
_TO_LEAVE_EARLY: Final = 0.2  # and if it never said a word
_TO_STOP: Final = 1.0  # seconds between being asked to end and being killed
_LAST_WAIT: Final = 5.0  # seconds for what was killed to be gone
_TICK: Final = 0.01


class Program(asyncio.SubprocessProtocol):
    """A process in a session of its own, whose input and output are a stream of messages."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
    ) -> None:
        if os.name != "posix":
            raise UsageError(
                "MCP servers are started on Linux and macOS only; here, start the server yourself,"
                " with HTTP, and give McpServer its address"
            )
        self._command = list(command)
        self._env = dict(env)
        self._cwd = cwd
        self._mark = f"{_MARK}={uuid4().hex}"
        self._transport: asyncio.SubprocessTransport | None = None
        self._errors: Pipe | None = None
        self._pid = 0
        self._ended_with: int | None = None
        self._exited = asyncio.Event()
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._output_ended = self._input_lost = self._is_ending = False
        self._went_first = False  # it ended the connection, and not we
        self._was_told = False  # it got a signal to end
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._tail = b""
        self._incoming = Incoming(self._more)
        self._outgoing = Outgoing(self._write)

    def streams(self) -> Self:
        """Start it, and give the streams to and from it."""
        return self

    async def __aenter__(self) -> tuple[Incoming, Outgoing]:
        errors = self._errors = Pipe(self._complained)
        name, _, value = self._mark.partition("=")
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors.write_fd,
                cwd=self._cwd,
                env=get_default_environment() | self._env | {name: value},
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        errors.close_write_end()
        return self._incoming, self._outgoing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end(_TO_LEAVE if self._incoming.has_spoken else _TO_LEAVE_EARLY)
        except BaseException:
            send_signal(signal.SIGKILL, self._left())
            raise
        finally:
            self._close()

    async def hint(self) -> str:
        return ""

    async def settle(self) -> None:
        """Let it end, if it is about to, and hear what it has to say."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                if self._output_ended:
                    await self._exited.wait()
        if self._errors is not None:
            self._errors.drain()

    def last_words(self) -> list[str]:
        """Return what is known of its end, in sentences."""
        told: list[str] = []
        if self._incoming.fault:
            told.append(self._incoming.fault)
        elif self._went_first and self._ended_with is not None and not self._was_told:
            told.append(f"it has ended ({describe_exit(self._ended_with)})")
        elif self._went_first:
            told.append("it has closed its output")
        if self._incoming.junk:
            told.append(f"on its stdout was {plain_text(self._incoming.junk)!r}")
        if tail := plain_text(self._tail.decode(errors="replace")).strip():
            told.append(f"its stderr ends with:\n{tail}")
        return told

    # What the process does

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self._pid = transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self._is_ending:
            return
        self._buffer += data
        self._news.set()
        if len(self._buffer) > _FULL:
            self._output().pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 0:
            self._input_lost = True
            self._may_write.set()
        else:
            self._end_output()

    def process_exited(self) -> None:
        assert self._transport is not None
        self._ended_with = self._transport.get_returncode()
        self._exited.set()
        # What it started may have its output, and keep that open.
        asyncio.get_running_loop().call_later(_LAST_WORDS, self._end_output)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _end_output(self) -> None:
        self._went_first = self._went_first or not self._is_ending
        self._output_ended = True
        self._news.set()

    def _complained(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk)[-_TAIL:]

    # What it is told, and says

    async def _more(self) -> bytes:
        while not self._buffer and not self._output_ended:
            self._news.clear()
            await self._news.wait()
        chunk = bytes(self._buffer)
        self._buffer.clear()
        if not self._output_ended:
            self._output().resume_reading()
        return chunk

    async def _write(self, data: bytes) -> None:
        self._check_input()
        self._input().write(data)
        await self._may_write.wait()
        self._check_input()

    def _check_input(self) -> None:
        if self._input_lost or self._input().is_closing():
            raise BrokenPipeError

    def _input(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        stdin = self._transport.get_pipe_transport(0)
        assert isinstance(stdin, asyncio.WriteTransport)
        return stdin

    def _output(self) -> asyncio.ReadTransport:
        assert self._transport is not None
        stdout = self._transport.get_pipe_transport(1)
        assert isinstance(stdout, asyncio.ReadTransport)
        return stdout

    # Its end

    async def _end(self, patience: float) -> None:
        """Have it end, and all that it started: by itself, if asked to, or killed."""
        self._is_ending = True
        self._output().resume_reading()  # who cannot write cannot end
        self._input().close()
        await self._wait(patience, lambda: self._ended_with is not None)
        if not self._is_gone():
            self._was_told = self._ended_with is None
            send_signal(signal.SIGTERM, self._left())
            await self._wait(_TO_STOP, self._is_gone)
        if not await self._wait(_LAST_WAIT, self._is_killed):
            raise McpConnectionError(f"processes of {self._command[0]!r} cannot be killed")

    def _is_gone(self) -> bool:
        return self._ended_with is not None and not self._left()

    def _is_killed(self) -> bool:
        send_signal(signal.SIGKILL, self._left())
        return self._is_gone()

    def _left(self) -> set[int]:
        return processes_of(self._pid) | processes_with(self._mark) if self._pid else set()

    async def _wait(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Wait until it is *done*; False if it took too long."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while not done():
            if clock() >= deadline:
                return False
            await asyncio.sleep(_TICK)
        return True

    def _close(self) -> None:
        if self._errors is not None:
            self._errors.drain()
            self._errors.close()
        if self._transport is not None:
            self._transport.close()
