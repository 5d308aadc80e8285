"""The function by which agents run shell commands."""

import itertools
import os
from collections.abc import Mapping
from typing import Final

from treefold.core.code import CodeFunction
from treefold.core.errors import (
    CallTimeoutError,
    InvalidArgumentsError,
    InvalidValueError,
    NoParentSessionError,
)
from treefold.core.function import Ask, RunContext, SessionScope
from treefold.core.truncation import truncate
from treefold.toolbox.shell.output import BoundedBytes, plain_text
from treefold.toolbox.shell.session import CommandResult, ShellSession, describe_exit

_MAX_TIMEOUT: Final = 3600.0  # seconds that a model may ask for
_numbers = itertools.count(1)

_DESCRIPTION: Final = """\
Run a command in a bash shell on this computer.

- The shell is persistent: working directory, variables, functions and background jobs are kept \
from one call to the next, but `set -euo pipefail` counts for one call. `exit`, `exec` and a \
failure under `set -e` end the shell; the next call then has a new one.
- The result is what the command printed, standard output and standard error together, and its \
exit code if that is not 0. Of more than {max_chars:,} characters the middle is left out: send \
large output to a file and look at parts of it with head, tail, sed or grep.
- Standard input is empty and there is no terminal: programs that ask, such as editors, pagers, \
password prompts or `git rebase -i`, do not work. Use flags such as -y instead.
- A command that takes longer than {timeout:g} seconds is stopped, with all that it started. Give \
`timeout` for one that needs longer. Start servers and the like in the background, with their \
output in a file: `server > server.log 2>&1 &`; they run on after the call.
- With `restart` the shell and all its background jobs are killed, and a new one is started."""


class Bash(CodeFunction):
    """Runs commands in a shell that persists between the calls of one caller.

    Each caller has its own shell, one for each Bash that it uses. It is killed, with all that it
    started, when its tree is deleted or the runtime closes. Of the variables of this process
    the shell has a few, such as PATH and HOME, and no passwords or keys; *env* has more for it, and
    ``env=os.environ`` passes all. *timeout* is in seconds, for one command. Several instances in
    one program need different names. *ask* is that of ``@tool``: whether a person approves each
    command.

    Example:
        >>> from treefold import Runtime
        >>> from treefold.toolbox import Bash
        >>> with Runtime() as runtime:
        ...     node = runtime.invoke(Bash(cwd="/"), {"command": "pwd; false"})
        ...     print(node.result())
        /
        [exit code 1]
    """

    trained_as = "bash"

    def __init__(
        self,
        *,
        timeout: float = 120,
        max_chars: int = 30_000,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        name: str = "bash",
        ask: Ask = False,
    ) -> None:
        if not 0 < timeout < float("inf"):
            raise InvalidValueError(
                f"timeout must be a positive number of seconds, got {timeout!r}"
            )
        if max_chars < 1:
            raise InvalidValueError(f"max_chars must be at least 1, got {max_chars!r}")
        super().__init__(
            name=name,
            desc=_DESCRIPTION.format(max_chars=max_chars, timeout=timeout),
            callable=self._call,
            ask=ask,
        )
        self._timeout = timeout
        self._max_chars = max_chars
        self._cwd = cwd
        self._env = dict(env or {})
        self._key = str(next(_numbers))

    async def _call(
        self,
        ctx: RunContext,
        command: str | None = None,
        restart: bool | None = None,  # noqa: FBT001 - the argument of a model, by name
        timeout: float | None = None,  # noqa: ASYNC109 - and this
    ) -> str:
        """Run a command.

        Args:
            command: What to run; may have several lines.
            restart: True to kill the shell and start a new one, before the command if there is one.
            timeout: Seconds after which the command is stopped.
        """
        seconds = self._check(command, timeout, restart=bool(restart))
        session = self._session(ctx)
        if restart:
            await session.restart()
        if command is None:
            return "[the shell was restarted]"
        result = await session.run(command, seconds)
        return self._describe(result, command, seconds)

    def _check(self, command: str | None, timeout: float | None, *, restart: bool) -> float:
        if command is None and not restart:
            raise InvalidArgumentsError("bash: give 'command', or 'restart': true")
        try:
            (command or "").encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentsError(f"bash: 'command' is not valid text: {error}") from None
        if "\0" in (command or ""):
            raise InvalidArgumentsError("bash: 'command' contains a NUL character; remove it")
        if timeout is None:
            return self._timeout
        longest = max(_MAX_TIMEOUT, self._timeout)
        if not 0 < timeout <= longest:
            raise InvalidArgumentsError(
                f"bash: 'timeout' must be above 0 and at most {longest:g} seconds, got {timeout:g};"
                " run what takes longer in the background"
            )
        return timeout

    def _session(self, ctx: RunContext) -> ShellSession:
        def make() -> ShellSession:
            return ShellSession(self._max_chars, self._cwd, self._env)

        try:
            return ctx.get_or_put(SessionScope.Parent, "treefold.bash", self._key, make)
        except NoParentSessionError:
            return ctx.get_or_put(SessionScope.Self, "treefold.bash", self._key, make)

    def _describe(self, result: CommandResult, command: str, seconds: float) -> str:
        """Return the result of a command as text for the caller.

        Raises:
            CallTimeoutError: the command timed out; the message has its output.
        """
        output = _plain(result.output)
        parts = (
            [f"[this is a new shell, without what was set in the last: {result.restart_reason}]"]
            if result.restart_reason
            else []
        )
        if result.timed_out:
            shell = (
                "the shell is still there, with its variables and earlier background jobs"
                if result.shell_returncode is None
                else "the shell had to be killed, and the next command gets a new one"
            )
            raise CallTimeoutError(
                "\n".join([
                    *parts,
                    f"bash: {_short(command)} took longer than {seconds:g} s and was stopped, with"
                    f" all that it started; {shell}. Give a longer 'timeout', or run it in the"
                    " background.",
                    f"It had printed:\n{output}" if output else "It had printed nothing.",
                ])
            )
        if output:
            parts.append(output)
        if result.shell_returncode is not None:
            parts.append(
                f"[the shell has ended ({describe_exit(result.shell_returncode)}), and its"
                " background jobs with it; the next command gets a new one]"
            )
        elif result.exit_code:
            parts.append(f"[exit code {result.exit_code}]")
        return "\n".join(parts) or "[no output]"


def _plain(output: BoundedBytes) -> str:
    return output.text(plain_text).removesuffix("\n")


def _short(command: str) -> str:
    first, _, more = command.strip().partition("\n")
    return repr(truncate(f"{first}…" if more else first, 60))


bash: Final = Bash()
