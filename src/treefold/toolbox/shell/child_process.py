"""A program as a child process, on any event loop.

Not the subprocesses of the loop: those of uvloop inherit whatever can be inherited, copies of their
own pipes included, so that the end of their output is not noticed. And if the start of one is
cancelled, its process id is unknown.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Thread
from typing import Final

from treefold.toolbox.shell.pipe import InputPipe

_POLL_INTERVAL: Final = 0.02  # seconds between checks for its exit, where the system tells nothing
_REAP: Final = 0.05  # seconds that a killed process is waited for


class ChildProcess:
    """A process in a session of its own.

    Args:
        command: the program with its arguments.
        on_exit: is called on the event loop when it has exited.
        stdout: a descriptor, or ``subprocess.DEVNULL``.
        stderr: the same.
        pass_fds: more descriptors that it inherits, with the same numbers.

    Attributes:
        pid: its process id.
        stdin: the pipe to its standard input.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_exit: Callable[[], None],
        *,
        stdout: int,
        stderr: int,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        pass_fds: Collection[int] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._exit_fd: int | None = None
        self.stdin = InputPipe()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=self.stdin.read_fd,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except BaseException:
            self.stdin.close()
            raise
        finally:
            self.stdin.close_read_end()
        self.pid: int = self._process.pid
        self._watch_exit()

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None before *on_exit* is called."""
        return self._process.returncode

    def close(self) -> None:
        """Close its standard input, and kill it if it still runs."""
        if self.returncode is None:
            self._process.kill()
            # It ends within a millisecond, and the loop may not run again to notice that.
            try:
                self._process.wait(_REAP)
            except subprocess.TimeoutExpired:
                # On a busy machine it takes longer, which must not hold up the loop.
                Thread(target=self._process.wait, name="treefold reaper", daemon=True).start()
        self.stdin.close()

    def _watch_exit(self) -> None:
        try:
            self._exit_fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # macOS, an old kernel, or a container that forbids it
            self._loop.call_later(_POLL_INTERVAL, self._check_exit)
        else:
            self._loop.add_reader(self._exit_fd, self._check_exit)

    def _check_exit(self) -> None:
        has_exited = self._process.poll() is not None
        if not has_exited and self._exit_fd is None:
            self._loop.call_later(_POLL_INTERVAL, self._check_exit)
        if has_exited and self._exit_fd is not None:
            self._loop.remove_reader(self._exit_fd)
            os.close(self._exit_fd)
        if has_exited:
            self._on_exit()
