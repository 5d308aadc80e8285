"""A server as a subprocess: started for one connection, and ended with all its descendants."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from treefold.core.errors import UsageError
from treefold.core.inherited_variables import inherited_variables
from treefold.mcp.errors import McpConnectionError
from treefold.mcp.messages import MessageReader, MessageWriter
from treefold.toolbox.shell.child_process import ChildProcess
from treefold.toolbox.shell.output import plain_text
from treefold.toolbox.shell.pipe import InputPipe, Pipe
from treefold.toolbox.shell.processes import processes_of, processes_with, send_signal
from treefold.toolbox.shell.session import describe_exit

_MARK: Final = "TREEFOLD_MCP"  # a variable that its descendants inherit, and are found by
_MAX_BUFFER: Final = 1 << 20  # bytes of unread output, before reading is paused
_STDERR_TAIL: Final = 2000  # bytes of its stderr that are kept
_OUTPUT_GRACE: Final = 0.5  # seconds that descendants may keep its output open after its exit
_EXIT_TIMEOUT: Final = 2.0  # seconds to exit after its stdin was closed
_EXIT_TIMEOUT_UNUSED: Final = 0.2  # the same, if it never sent a message
_TERMINATE_TIMEOUT: Final = 1.0  # seconds between SIGTERM and SIGKILL
_KILL_TIMEOUT: Final = 5.0  # seconds for killed processes to disappear
_TICK: Final = 0.01  # seconds


class StdioTransport:
    """A process in its own session, whose stdin and stdout carry messages."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
    ) -> None:
        if os.name != "posix":
            raise UsageError(
                "McpServer starts programs on Linux and macOS only: start the server yourself, with"
                " HTTP, and pass its URL"
            )
        self._command = list(command)
        self._env = dict(env)
        self._cwd = cwd
        self._mark = f"{_MARK}={uuid4().hex}"
        self._process: ChildProcess | None = None
        self._stdout: Pipe | None = None
        self._stderr: Pipe | None = None
        self._exit_code: int | None = None
        self._exited = asyncio.Event()
        self._buffer = bytearray()
        self._has_data = asyncio.Event()
        self._output_ended = self._is_ending = False
        self._ended_first = False  # the server closed the connection, and not the client
        self._was_terminated = False  # by a signal of ours
        self._stderr_tail = b""
        self._reader = MessageReader(self._read)
        self._writer = MessageWriter(self._write)

    def streams(self) -> Self:
        """Return the context manager that starts the process and gives its streams."""
        return self

    async def __aenter__(self) -> tuple[MessageReader, MessageWriter]:
        name, _, value = self._mark.partition("=")
        try:
            stdout = self._stdout = Pipe(self._receive, self._end_output)
            stderr = self._stderr = Pipe(self._keep_stderr)
            self._process = ChildProcess(
                self._command,
                self._process_exited,
                stdout=stdout.write_fd,
                stderr=stderr.write_fd,
                cwd=self._cwd,
                env=inherited_variables(os.environ) | self._env | {name: value},
            )
        except BaseException:
            self._close()
            raise
        stdout.close_write_end()
        stderr.close_write_end()
        return self._reader, self._writer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._end(_EXIT_TIMEOUT if self._reader.has_messages else _EXIT_TIMEOUT_UNUSED)
        except BaseException:
            send_signal(signal.SIGKILL, self._processes())
            raise
        finally:
            self._close()

    async def connection_hint(self) -> str:
        return ""

    async def wait_for_exit(self) -> None:
        """Wait briefly for a process that is exiting, and read the rest of its stderr."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_OUTPUT_GRACE):
                if self._output_ended:
                    await self._exited.wait()
        if self._stderr is not None:
            self._stderr.drain()

    def failure_details(self) -> list[str]:
        """Return what is known about its end, as clauses."""
        details: list[str] = []
        if self._reader.error:
            details.append(self._reader.error)
        elif self._ended_first and self._exit_code is not None and not self._was_terminated:
            details.append(f"its process ended ({describe_exit(self._exit_code)})")
        elif self._ended_first:
            details.append("it closed its stdout")
        if self._reader.junk:
            details.append(f"its stdout has {plain_text(self._reader.junk)!r}")
        if tail := plain_text(self._stderr_tail.decode(errors="replace")).strip():
            details.append(f"its stderr ends with:\n{tail}")
        return details

    # Callbacks of the process and its pipes

    def _receive(self, chunk: bytes) -> None:
        if self._is_ending:
            return
        self._buffer += chunk
        self._has_data.set()
        if len(self._buffer) > _MAX_BUFFER:
            self._output().pause()

    def _process_exited(self) -> None:
        assert self._process is not None
        self._exit_code = self._process.returncode
        self._exited.set()
        # Its descendants may have inherited its stdout, and keep it open.
        asyncio.get_running_loop().call_later(_OUTPUT_GRACE, self._end_output)

    def _end_output(self) -> None:
        self._ended_first = self._ended_first or not self._is_ending
        self._output_ended = True
        self._has_data.set()

    def _keep_stderr(self, chunk: bytes) -> None:
        self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_TAIL:]

    # Reading and writing

    async def _read(self) -> bytes:
        while not self._buffer and not self._output_ended:
            self._has_data.clear()
            await self._has_data.wait()
        chunk = bytes(self._buffer)
        self._buffer.clear()
        if not self._output_ended:
            self._output().resume()
        return chunk

    async def _write(self, data: bytes) -> None:
        stdin = self._input()
        stdin.write(data)
        await stdin.drain()
        if not stdin.is_open:
            raise BrokenPipeError

    def _input(self) -> InputPipe:
        assert self._process is not None
        return self._process.stdin

    def _output(self) -> Pipe:
        assert self._stdout is not None
        return self._stdout

    # Ending

    async def _end(self, seconds: float) -> None:
        """End the process and its descendants: close its stdin, then SIGTERM, then SIGKILL."""
        self._is_ending = True
        self._output().resume()  # a process that blocks on its output cannot exit
        self._input().close()
        await self._wait(seconds, lambda: self._exit_code is not None)
        if not self._is_gone():
            self._was_terminated = self._exit_code is None
            send_signal(signal.SIGTERM, self._processes())
            await self._wait(_TERMINATE_TIMEOUT, self._is_gone)
        if not await self._wait(_KILL_TIMEOUT, self._is_killed):
            raise McpConnectionError(f"processes of {self._command[0]!r} cannot be killed")

    def _is_gone(self) -> bool:
        return self._exit_code is not None and not self._processes()

    def _is_killed(self) -> bool:
        send_signal(signal.SIGKILL, self._processes())
        return self._is_gone()

    def _processes(self) -> set[int]:
        if self._process is None:
            return set()
        return processes_of(self._process.pid) | processes_with(self._mark)

    async def _wait(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Wait until *done*; return False after *seconds*."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while not done():
            if clock() >= deadline:
                return False
            await asyncio.sleep(_TICK)
        return True

    def _close(self) -> None:
        if self._stderr is not None:
            self._stderr.drain()
            self._stderr.close()
        if self._stdout is not None:
            self._stdout.close()
        if self._process is not None:
            self._process.close()
