"""One turn of a chat: a prompt, the answer, and the questions and calls in between."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from treefold.chat.blocks import Block, TextBlock, ThinkingBlock, ToolUseBlock, ToolUseError
from treefold.chat.client import Client
from treefold.cli.asking_call import AskingCall
from treefold.cli.chat_input import LineReader
from treefold.cli.chat_screen import Screen
from treefold.core.errors import StoreError, TracedError, TreefoldError
from treefold.core.question import Question
from treefold.runtime.runtime import Runtime
from treefold.views.text import printable


class TurnRunner:
    """Sends prompts, shows the answers, and puts the questions of tools to the user.

    Attributes:
        unsaved: whether some of the conversation could not be saved.
    """

    def __init__(
        self, runtime: Runtime, client: Client, screen: Screen, reader: LineReader
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._screen = screen
        self._reader = reader
        self.unsaved = False

    async def run(self, prompt: str) -> bool:
        """Send *prompt* and show the answer; return whether it was complete.

        Ctrl-C interrupts the answer. A second Ctrl-C before that is done raises KeyboardInterrupt.
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
                    # After an interrupt, this task still saves the part that came.
                    if not stopped.is_set():
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
            self._show_error(error)
            return False
        finally:
            self._delete_ended()
        return True

    def _show(self, block: Block) -> None:
        match block:
            case TextBlock():
                self._screen.text(block.text)
            case ThinkingBlock(was_text=True):
                self._screen.note("(that was thinking; the answer follows)")
            case ThinkingBlock():
                self._screen.thinking(block.thinking)
            case ToolUseBlock():
                self._screen.call(block.id, block.name, block.input)
            case ToolUseError():
                self._screen.failed(block.error)
            case _:
                pass

    def _show_error(self, error: TreefoldError) -> None:
        self.unsaved |= isinstance(error, StoreError)
        message = error.message if isinstance(error, TracedError) else str(error)
        self._screen.note(printable(message))

    async def _stop_when(self, stopped: asyncio.Event) -> None:
        await stopped.wait()
        self._screen.note("(interrupted)")
        try:
            await self._client.interrupt()
        except TreefoldError as error:  # the part that came cannot be saved
            self._show_error(error)

    async def _ask(self, stopped: asyncio.Event) -> None:
        """Put the questions of this turn to the user, one after the other."""
        node: Any = self._client.node
        async for _ in self._runtime.watch(node):
            for question in self._runtime.questions():
                if not await self._answered(question):
                    self._screen.note("(the input has ended: nobody can answer)")
                    stopped.set()
                    return

    async def _answered(self, question: Question) -> bool:
        call = AskingCall.of(question, self._runtime.stack)
        turn: Any = self._client.node
        if call.caller is not None and call.caller.node_id == turn.id:
            call = replace(call, caller=None)  # the user knows what the turn is about
        self._screen.note("\n".join(call.lines("? ")))
        while (line := await self._reader.answer("? ")) is not None:
            try:
                await asyncio.to_thread(self._runtime.answer, question.id, line.strip())
            except KeyError:  # it was closed meanwhile
                return True
            except TreefoldError as error:
                self._screen.note(str(error))
            else:
                return True
        return False

    def _delete_ended(self) -> None:
        """Delete the trees of turns that have ended: the client has the conversation."""
        for node in self._runtime.list_toplevel():
            if node.state.final:
                self._runtime.delete(node.id)


@contextmanager
def _on_interrupt(act: Callable[[], None]) -> Generator[None]:
    """Call *act* on the event loop for every SIGINT, instead of raising KeyboardInterrupt."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)

    def pass_on(_signal: int, _frame: object) -> None:
        loop.call_soon_threadsafe(act)

    try:
        loop.add_signal_handler(signal.SIGINT, act)  # this also wakes a sleeping loop
    except NotImplementedError:  # on Windows
        signal.signal(signal.SIGINT, pass_on)
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
