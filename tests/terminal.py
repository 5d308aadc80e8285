"""A program in a terminal of its own, and somebody who types and looks."""

import asyncio
import codecs
import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import pyte

import warm_python

PATIENCE = 60
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"

# What cannot be seen: readline marks pasted lines and moves the cursor, and lines wrap or do not.
_UNSEEN = re.compile(r"\x1b\[\?2004[hl]\r?|\x1b\[[0-9]*[CDGK]|\x1b\[\?7[hl]")


class Terminal:
    """Runs ``python *args*``; whatever it does not do in time is an error."""

    def __init__(
        self, *args: str, env: Mapping[str, str], columns: int = 100, lines: int = 40
    ) -> None:
        self._args = args
        self._env = {**os.environ, "TERM": "xterm", **env}
        self._size = columns, lines
        self._screen: Any = pyte.HistoryScreen(columns, lines)
        self._emulator: Any = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._output = bytearray()
        self._seen = 0
        self._more = asyncio.Event()
        self._over = asyncio.Event()
        self._program: warm_python.Program | None = None
        self._master = -1

    @property
    def raw(self) -> str:
        """All that was sent to the terminal."""
        return self._output.decode(errors="replace")

    @property
    def shown(self) -> str:
        """What there is to be seen, with line breaks as usual."""
        return _UNSEEN.sub("", self.raw).replace("\r\n", "\n")

    @property
    def screen(self) -> list[str]:
        """The lines that are on the screen now, without the empty ones at its end."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def resize(self, columns: int, lines: int) -> None:
        """Make the window larger or smaller; what was on the screen is gone."""
        self._screen.reset()
        self._screen.resize(lines, columns)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    async def see_on_screen(self, *texts: str, patience: float = PATIENCE) -> None:
        """Wait until all *texts* are on the screen at once."""
        try:
            async with asyncio.timeout(patience):
                while not all(text in "\n".join(self.screen) for text in texts):
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            shown = "\n".join(self.screen)
            raise AssertionError(f"{texts!r} are not on the screen:\n{shown}") from None

    async def see(self, text: str, patience: float = PATIENCE) -> None:
        """Wait until *text* is shown, after what was waited for before."""
        try:
            async with asyncio.timeout(patience):
                while (at := self.shown.find(text, self._seen)) < 0:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} was not shown, but {self.shown!r}") from None
        self._seen = at + len(text)

    async def press_until(self, keys: str, text: str) -> None:
        """Press *keys*, again and again, until *text* is shown.

        Python overlooks a signal that comes when it has shown a prompt and does not wait yet.
        """
        for _ in range(int(PATIENCE)):
            self.press(keys)
            with contextlib.suppress(AssertionError):
                return await self.see(text, patience=1)
        raise AssertionError(f"{text!r} was not shown, but {self.shown!r}")

    def press(self, keys: str) -> None:
        """Press *keys*."""
        os.write(self._master, keys.encode())

    async def exit_code(self) -> int:
        """Wait until the program ends, and all that it has written is there."""
        assert self._program is not None
        code = await self._program.exit_code()
        async with asyncio.timeout(PATIENCE):
            await self._over.wait()
        return code

    async def __aenter__(self) -> Self:
        self._master, terminal = pty.openpty()
        columns, lines = self._size
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        try:
            self._program = warm_python.start(
                *self._args, files=(terminal, terminal, terminal), env=self._env, in_terminal=True
            )
        finally:
            os.close(terminal)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._program is not None
        self._program.kill()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            part = os.read(self._master, 65536)
        except OSError:  # the other side is gone
            part = b""
        if not part:
            asyncio.get_running_loop().remove_reader(self._master)
            self._over.set()
        self._output += part
        self._emulator.feed(self._decoder.decode(part))
        self._more.set()
