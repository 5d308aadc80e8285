"""A whole chat in the terminal, from its options to its exit code."""

import asyncio
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from treefold.chat.client import Client
from treefold.chat.options import AgentOptions
from treefold.cli.chat_commands import QUIT, ChatCommands
from treefold.cli.chat_input import LineReader
from treefold.cli.chat_screen import Screen
from treefold.cli.chat_turn import TurnRunner
from treefold.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE
from treefold.cli.loading import is_in_file, load_functions, load_model
from treefold.cli.model_choice import AUTO, ModelChoice, ask_for_model, choose_model
from treefold.core.decisions import HOOK_POST_TOOL_USE, PostToolUseEvent
from treefold.core.errors import InvalidValueError, TreefoldError
from treefold.runtime.runtime import Runtime

_PROMPT: Final = "> "
_MOST_ITERATIONS: Final = 50  # rounds of tool calls in one turn
_GRACE: Final = 2.0  # seconds for an orderly end after Ctrl-C


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The options of ``treefold chat``."""

    model: str | None
    base_url: str | None
    local: bool
    system: str
    tools: tuple[str, ...]
    session: str | None
    store: str | None
    max_tokens: int | None
    temperature: float | None


def chat_with(options: ChatOptions) -> int:
    """Run a chat with *options*; return its exit code."""
    screen = Screen()
    try:
        with asyncio.Runner() as runner, _logged(screen):
            return _prepare(runner, screen, options).run()
    except TreefoldError as error:
        screen.note(f"treefold chat: {error}")
        return USAGE
    except KeyboardInterrupt:
        screen.end()
        return INTERRUPTED


def _prepare(runner: asyncio.Runner, screen: Screen, options: ChatOptions) -> "_ChatLoop":
    if options.store and not options.session:
        raise InvalidValueError("--store says where a session is saved: give --session, too")
    if options.model is not None and is_in_file(options.model):
        choice = ModelChoice(options.model, None, "--model")
    elif options.model == AUTO and not options.local and not options.base_url:
        choice = ModelChoice(ask_for_model(None), None, "--model auto")
    else:
        choosing = choose_model(options.model, options.base_url, embedded=options.local)
        choice = runner.run(choosing)
    client_options = _agent_options(options, choice, screen)
    client = Client(client_options, session=options.session, store=options.store)
    screen.note(f"talking to {choice} ({choice.why}); /help lists the commands")
    return _ChatLoop(runner, screen, client, str(choice))


def _agent_options(options: ChatOptions, choice: ModelChoice, screen: Screen) -> AgentOptions:
    async def show_result(event: PostToolUseEvent) -> None:
        screen.result(event.tool_use_id, event.tool_result, is_error=event.is_error)

    tools = load_functions(options.tools)
    given: dict[str, Any] = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    return AgentOptions(
        options.system,
        load_model(choice.model),
        base_url=choice.base_url,
        tools=tools,
        auto_execute_tools=True,
        max_tool_iterations=_MOST_ITERATIONS,
        hooks={HOOK_POST_TOOL_USE: [show_result]},
        on_blocked="tell",
        **{name: value for name, value in given.items() if value is not None},
    )


@contextmanager
def _logged(screen: Screen) -> Generator[None]:
    """Show log messages on *screen*: that a request is retried, that a model takes no functions."""
    log = logging.getLogger("treefold")
    before, log.propagate = log.propagate, False
    log.addHandler(screen)
    try:
        yield
    finally:
        log.removeHandler(screen)
        log.propagate = before


class _ChatLoop:
    """The loop of prompts and answers; the event loop does not run while a prompt is typed."""

    def __init__(self, runner: asyncio.Runner, screen: Screen, client: Client, name: str) -> None:
        self._runner = runner
        self._screen = screen
        self._reader = LineReader()
        self._runtime = Runtime()
        self._client = client
        self._turns = TurnRunner(self._runtime, client, screen, self._reader)
        self._commands = ChatCommands(client, screen, name)
        self._failed = False

    def run(self) -> int:
        """Talk until there are no more prompts; return the exit code."""
        self._runner.run(self._enter())
        try:
            self._converse()
        except KeyboardInterrupt:
            # Do not wait forever for something that does not end.
            self._runner.get_loop().call_later(_GRACE, os._exit, INTERRUPTED)
            raise
        finally:
            self._runner.run(self._leave())
        return FAILED if self._failed or self._turns.unsaved else DONE

    def _converse(self) -> None:
        while (line := self._next_line()) is not None and line.strip() != QUIT:
            prompt = self._commands.run(line) if line.strip() else None
            if not prompt:
                continue
            answered = self._runner.run(self._turns.run(prompt))
            self._failed |= not answered and not self._reader.at_terminal

    def _next_line(self) -> str | None:
        while True:
            try:
                return self._reader.read(_PROMPT)
            except KeyboardInterrupt:
                if not self._reader.at_terminal:
                    raise
                self._screen.note("\n(Ctrl-D or /quit ends the chat)")

    async def _enter(self) -> None:
        await self._runtime.__aenter__()
        await self._client.__aenter__()
        if past := self._client.history:
            self._screen.note(f"resuming after {len(past)} messages; /history shows them")

    async def _leave(self) -> None:
        try:
            await self._client.close()
        except TreefoldError as error:  # the end of the conversation could not be saved
            self._screen.note(str(error))
            self._failed = True
        finally:
            await self._runtime.__aexit__(None, None, None)
