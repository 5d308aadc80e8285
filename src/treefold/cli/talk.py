"""One prompt, and all that comes of it until it is the user's turn again."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from treefold.chat.blocks import Block, TextBlock, ThinkingBlock, ToolUseBlock, ToolUseError
from treefold.chat.client import Client
from treefold.cli.asking import shown
from treefold.cli.line_reader import LineReader
from treefold.cli.screen import Screen
from treefold.core.errors import StoreError, TracedError, TreefoldError
from treefold.core.question import Question
from treefold.runtime.runtime import Runtime
from treefold.views.text import printable


class Talk:
    """Sends prompts, shows what comes, and puts to the user what tools ask.

    Attributes:
        unsaved: whether something could not be saved.
    """

    def __init__(
        self, runtime: Runtime, client: Client, screen: Screen, reader: LineReader
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._screen = screen
        self._reader = reader
        self.unsaved = False

    async def say(self, prompt: str) -> bool:
        """Send *prompt* and show the answer; return whether there was one.

        Ctrl-C interrupts the answer. A second one, should that take long, is a KeyboardInterrupt.
        """
        stopped = asyncio.Event()

        def interrupt() -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            stopped.set()

        try:
            with _on_interrupt(interrupt):
                async with asyncio.TaskGroup() as group:
                    stopping = group.create_task(self._stop_when(stopped))
                    answered = await self._converse(group, prompt, stopped)
                    if not stopped.is_set():  # otherwise it is being saved how far it came
                        stopping.cancel()
        finally:
            self._screen.end()
        return answered and not stopped.is_set()

    async def _converse(
        self, group: asyncio.TaskGroup, prompt: str, stopped: asyncio.Event
    ) -> bool:
        try:
            await self._client.query(prompt)
            asking = group.create_task(self._ask(stopped))
            try:
                async for block in self._client.receive_messages():
                    self._show(block)
            finally:
                asking.cancel()
        except TreefoldError as error:
            self._tell(error)
            return False
        finally:
            self._forget()
        return True

    def _show(self, block: Block) -> None:
        match block:
            case TextBlock():
                self._screen.text(block.text)
            case ThinkingBlock(was_text=True):
                self._screen.note("(that was thinking; now comes the answer)")
            case ThinkingBlock():
                self._screen.thinking(block.thinking)
            case ToolUseBlock():
                self._screen.call(block.id, block.name, block.input)
            case ToolUseError():
                self._screen.failed(block.error)
            case _:
                pass

    def _tell(self, error: TreefoldError) -> None:
        self.unsaved |= isinstance(error, StoreError)
        message = error.message if isinstance(error, TracedError) else str(error)
        self._screen.note(printable(message))

    async def _stop_when(self, stopped: asyncio.Event) -> None:
        await stopped.wait()
        self._screen.note("(interrupted)")
        try:
            await self._client.interrupt()
        except TreefoldError as error:  # what was said until then cannot be kept
            self._tell(error)

    async def _ask(self, stopped: asyncio.Event) -> None:
        """Put the questions of this turn to the user, one after the other."""
        node: Any = self._client.node
        async for _ in self._runtime.watch(node):
            for question in self._runtime.questions():
                if not await self._answered(question):
                    self._screen.note("(there is nobody to answer)")
                    stopped.set()
                    return

    async def _answered(self, question: Question) -> bool:
        self._screen.note(shown(question))
        while (line := await self._reader.answer("? ")) is not None:
            try:
                await asyncio.to_thread(self._runtime.answer, question.id, line.strip())
            except KeyError:  # it is not open any more
                return True
            except TreefoldError as error:
                self._screen.note(str(error))
            else:
                return True
        return False

    def _forget(self) -> None:
        """Drop the trees of turns that have ended: the client has what was said."""
        for node in self._runtime.list_toplevel():
            if node.state.final:
                self._runtime.delete(node.id)


@contextmanager
def _on_interrupt(act: Callable[[], None]) -> Generator[None]:
    """Call *act* on the loop for every SIGINT, instead of what else would be done."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def pass_on(_signal: int, _frame: object) -> None:
        loop.call_soon_threadsafe(act)

    try:
        loop.add_signal_handler(signal.SIGINT, act)  # which wakes a loop that just went to sleep
    except NotImplementedError:  # Windows
        signal.signal(signal.SIGINT, pass_on)
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
