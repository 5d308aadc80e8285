"""Talking to a model: one question with ``query``, or a conversation of turns with ``Client``."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from copy import copy, deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from treefold.agents.prompts import as_text
from treefold.chat.blocks import AssistantMessage, Block, ResultMessage, TypedMessage
from treefold.chat.function import ChatFunction
from treefold.chat.history import ChatHistory
from treefold.chat.options import AgentOptions
from treefold.chat.saving import Saver
from treefold.chat.turn import ChatTurn
from treefold.chat.typed_messages import plain, typed
from treefold.core.decisions import HOOK_POST_TOOL_USE, PostToolUseEvent, RuleChain
from treefold.core.errors import (
    ClosedError,
    InvalidValueError,
    SessionConflictError,
    StoreError,
    UsageError,
)
from treefold.core.function import Node
from treefold.core.messages import Message
from treefold.core.sessions import Sessions
from treefold.core.states import NodeState
from treefold.core.store import Store
from treefold.core.transcript import ToolResult
from treefold.core.usage import TokenUsage
from treefold.models.json_text import parse_json_object
from treefold.runtime.ambient import current_context
from treefold.runtime.graph import check_listed, reachable
from treefold.stores.opening import open_store
from treefold.stores.saved_chats import SavedChats
from treefold.stores.sessions import SessionStore
from treefold.stores.urls import is_url

_CLOSING_TICKS: Final = 10  # passes of the event loop in which an abandoned iteration is closed

log = logging.getLogger("treefold.chat")


async def query(
    prompt: str, options: AgentOptions
) -> AsyncGenerator[AssistantMessage | ResultMessage, None]:
    """Ask one question and stream the answer, a message for each piece of it.

    Leaving the iteration early cancels the request. Calls that the model asks for are yielded for
    the program to make, or made with ``auto_execute_tools``. With ``result_message``, the last
    message is a ResultMessage.

    Example:
        >>> import asyncio
        >>> from treefold import AgentOptions, TextBlock, query
        >>> from treefold.testing import ScriptedModel
        >>> async def main():
        ...     options = AgentOptions("You are brief.", ScriptedModel("Four."))
        ...     async for message in query("2 + 2?", options):
        ...         print(message.content)
        >>> asyncio.run(main())
        [TextBlock(text='Four.', type='text')]
    """
    async with Client(options) as client:
        await client.query(prompt)
        async with aclosing(client.receive_messages()) as blocks:
            async for block in blocks:
                is_result = isinstance(block, ResultMessage)
                message = block if is_result else AssistantMessage([block])
                yield message  # noqa: ASYNC119 - the loop closes what is left


class Client:  # noqa: PLR0904 - all that a chat is used for
    """A conversation with a model, turn by turn.

    Each turn is a call, and the calls that the model asks for are its children; inside an ``async
    with Runtime()`` block they are part of its trees. ``message_history`` may be edited at any
    time.

    Args:
        options: the model, its tools and the limits of the chat.
        session: save the conversation under this name, and continue the saved one if there is one.
            (The ``Session`` of a model is another thing.)
        store: where to save it: the path of a file, a ``postgresql://`` URL, or a store, which may
            be that of a Runtime; by default ``chats.db`` in the user's data folder.

    Attributes:
        options: the model, its tools and the limits of the chat.
        turn_count: the number of turns that were read to their end.

    Raises:
        InvalidValueError: two tools have the same name, or an option cannot be used.

    Example:
        >>> import asyncio
        >>> from treefold import AgentOptions, Client, TextBlock, ToolUse, tool
        >>> from treefold.testing import ScriptedModel
        >>> @tool("add", "Add two numbers", {"a": int, "b": int})
        ... async def add(args):
        ...     return args["a"] + args["b"]
        >>> model = ScriptedModel(ToolUse("1", "add", {"a": 25, "b": 17}), "It is 42.")
        >>> options = AgentOptions("You are brief.", model, tools=[add], auto_execute_tools=True)
        >>> async def main():
        ...     async with Client(options) as client:
        ...         await client.query("What is 25 + 17?")
        ...         async for block in client.receive_messages():
        ...             if isinstance(block, TextBlock):
        ...                 print(block.text, end="")
        >>> asyncio.run(main())
        It is 42.
    """

    def __init__(
        self,
        options: AgentOptions,
        *,
        session: str | None = None,
        store: Store | SessionStore | str | Path | None = None,
    ) -> None:
        if not isinstance(options, AgentOptions):
            raise InvalidValueError(f"a Client needs AgentOptions(...), not {options!r}")
        self.options = options
        self.turn_count = 0
        self._function = ChatFunction(options)
        check_listed(options.rules(), reachable(self._function.uses))
        self._history = ChatHistory()
        # The arguments of calls that were yielded, by the id of the call.
        self._inputs: dict[str, Mapping[str, Any]] = {}
        # The newest turn until it has been read to its end, and its node.
        self._turn: ChatTurn | None = None
        self._node: Any = None
        self._earlier_usage = TokenUsage()  # of the turns before the newest
        self._reader: object = None  # identifies the newest receive_messages()
        # Whether query("") was called in this turn; it begins when all of the turn has been read.
        self._continues = False
        self._store = store
        # Opened, and to be closed, by this client.
        self._own_store: Store | SessionStore | None = None
        self._saver = None
        if session is not None:
            self._saver = Saver(self._sessions(), session, options.model_name)
        elif store is not None:
            raise InvalidValueError("store= needs session=, the name to save the chat under")
        self._loaded = self._saver is None

    def __repr__(self) -> str:
        kept = "" if self._saver is None else f", session {self._saver.name!r}"
        return f"<Client {self.options.model_name}, {self.turn_count} turns{kept}>"

    # History

    @property
    def message_history(self) -> list[Message]:
        """The messages so far, without the system prompt; may be edited or replaced."""
        return self._history.messages

    @message_history.setter
    def message_history(self, messages: Sequence[Message | TypedMessage]) -> None:
        self._history.messages = [one for message in messages for one in plain(message)]

    @property
    def history(self) -> list[Message]:
        """A copy of the messages so far."""
        return deepcopy(self._history.messages)

    @property
    def messages(self) -> list[TypedMessage]:
        """The messages so far as objects."""
        return typed([one for message in self.message_history for one in plain(message)])

    @property
    def turn_metadata(self) -> dict[str, Any]:
        """Data about the conversation: ``{"turn_count": ...}``."""
        return {"turn_count": self.turn_count}

    @property
    def usage(self) -> TokenUsage:
        """The tokens of all turns of this client, including the agents that they called."""
        earlier = self._earlier_usage
        return earlier if self._node is None else earlier + self._node.total_usage

    @property
    def node(self) -> Node | None:
        """The node of the newest turn; None before the first."""
        return self._node

    # Turns

    async def query(self, prompt: str) -> None:
        """Send *prompt*, and wait until the provider has accepted the request.

        ``receive_messages()`` yields the answer. An empty *prompt* sends the results of the calls
        that the model asked for. A new prompt interrupts a turn that is still under way.

        Raises:
            BlockedError: a hook, or a person, forbade it (a RuntimeError).
            InvalidValueError: there is nothing to send.
            CallGraphError: there is no such model, or it does not accept these tools.
            ModelProviderException: the request failed, after retries if it could be retried; also
                an instance of the SDK's class, such as ``openai.RateLimitError``.
            StoreError: the session cannot be read or written.
            SessionConflictError: another client continued the session.
        """
        if not isinstance(prompt, str):
            raise InvalidValueError(f"a prompt is text, not {prompt!r}")
        if prompt and not prompt.strip():
            raise InvalidValueError("there is nothing to send: the prompt is empty")
        if not prompt and self._has_more:
            self._continues = True
            return
        await self._supersede()
        self._forget_turn()
        await self._begin(prompt)

    @property
    def _has_more(self) -> bool:
        """Whether blocks of the newest turn, or its exception, are still to be read."""
        turn = self._turn
        failed = self._node is not None and self._node.state is NodeState.Error
        return turn is not None and (failed or not turn.block_stream.is_exhausted)

    def _forget_turn(self) -> None:
        """Drop the newest turn; if it failed and was not read to its end, log the exception."""
        if self._turn is not None and self._node.state is NodeState.Error:
            log.warning(
                "%s failed, and its answer was not read: %s", self._node, self._node.exception
            )
        self._turn = None

    async def _begin(self, prompt: str) -> None:
        await self._load()
        self._continues = False
        waiting = {call.id for call in self._history.asked}
        self._inputs = {id: given for id, given in self._inputs.items() if id in waiting}
        loop = asyncio.get_running_loop()
        turn = ChatTurn(
            self.options,
            self._history,
            prompt,
            self._inputs,
            self._saver,
            loop.create_future(),
        )
        node = turn.start(self._function, current_context())
        if self._node is not None:
            self._earlier_usage += self._node.total_usage
        self._turn, self._node = turn, node
        try:
            await turn.opened
        except asyncio.CancelledError:
            node.cancel("the query was given up")
            raise
        if node.state is NodeState.Error and not turn.accepted:
            self._turn = None
            await node  # raises its exception

    async def receive_messages(self) -> AsyncGenerator[Block | ResultMessage, None]:
        """Yield the blocks of the answer as they arrive; leaving early interrupts the turn.

        After ``add_tool_result()`` and ``query("")`` during the iteration, the iteration continues
        with the next response. With ``result_message``, the last that it yields is a ResultMessage.

        Raises:
            BlockedError: a call is forbidden, and ``on_blocked`` is "raise" (a RuntimeError).
            ModelProviderException: the provider failed in the middle of its response, or a later
                request of the same turn failed.
            UsageError: there was no query.
        """
        reader = await self._become_reader()
        turn, prompts = self._turn, 1
        nodes: list[Any] = [self._node]
        # What an answer took is not told again when there is nothing more of it to receive.
        ends_with_result = self.options.result_message and turn is not None
        try:
            while turn is not None:
                block = await turn.block_stream.take()
                if turn is not self._turn:  # there was another query meanwhile
                    # If it came after the last block, the turn was read to its end.
                    self.turn_count += block is None and nodes[-1].state is NodeState.Success
                    turn = self._turn
                    prompts += turn is not None and turn.prompt != ""
                    if prompts > self.options.max_turns:
                        turn = None
                elif block is not None:
                    yield block
                    continue
                elif self._failed and self.options.result_message:
                    yield self._result(nodes, is_error=True)
                    turn = await self._next_turn(turn)  # raises the exception
                else:
                    turn = await self._next_turn(turn)
                if turn is not None and self._node is not nodes[-1]:
                    nodes.append(self._node)
            if ends_with_result:
                yield self._result(nodes, is_error=False)
        finally:
            if self._reader is reader:
                self._reader = None
                self._interrupt_unread(turn)

    @property
    def _failed(self) -> bool:
        """Whether the newest turn, which has ended, raises an exception."""
        turn, state = self._turn, self._node.state
        return turn is not None and not turn.interrupted and state is not NodeState.Success

    def _result(self, nodes: Sequence[Any], *, is_error: bool) -> ResultMessage:
        """Return what the turns of *nodes* took."""
        first, last = nodes[0], nodes[-1]
        costs = [node.total_cost for node in nodes]
        started, ended = first.started_at, last.ended_at
        seconds = (ended - started).total_seconds() if started and ended else 0.0
        stopped = last.state is not NodeState.Success
        return ResultMessage(
            subtype="error" if is_error else "interrupted" if stopped else "success",
            duration_ms=round(seconds * 1000),
            is_error=is_error,
            num_turns=sum(len(node.exchanges) for node in nodes),
            session_id=None if self._saver is None else self._saver.name,
            total_cost_usd=None if None in costs else float(sum(costs)),
            usage=sum((node.total_usage for node in nodes), TokenUsage()),
            result=None if stopped else last.outputs,
        )

    async def _become_reader(self) -> object:
        # An earlier iteration that was left without aclosing() is closed by the event loop, soon.
        for _ in range(_CLOSING_TICKS):
            if self._reader is not None:
                await asyncio.sleep(0)
        if self._node is None:
            raise UsageError("there is nothing to receive: ask something first, by query('...')")
        self._reader = reader = object()
        return reader

    async def _next_turn(self, turn: ChatTurn) -> ChatTurn | None:
        """Finish *turn*, which was read to its end; begin and return the next if there is one."""
        node, self._turn = self._node, None
        if node.state is not NodeState.Success and not turn.interrupted:
            await node  # raises its exception
        self.turn_count += 1
        if self._continues and self._history.asked:
            await self._begin("")
        return self._turn

    def _interrupt_unread(self, turn: ChatTurn | None) -> None:
        """Interrupt *turn*, which has no reader any more."""
        if turn is not None and turn is self._turn and not self._node.state.final:
            turn.interrupted = True
            self._node.cancel("nobody reads it any more")

    async def interrupt(self) -> None:
        """Stop the turn that is under way: its request and its calls are cancelled.

        The text so far is kept as the answer. Iterations over ``receive_messages()`` end without an
        exception.
        """
        turn, node = self._turn, self._node
        if turn is None:
            return
        if not node.state.final:
            turn.interrupted = True
            try:
                node.cancel("interrupted")
            except ClosedError:
                # Its event loop was closed first, so the turn will neither continue nor end.
                self._history.abandon()
            else:
                await node.ended()
        await turn.save()

    async def _supersede(self) -> None:
        """Stop the turn that is under way; its prompt stays in the history, answered or not."""
        if self._turn is not None:
            self._turn.superseded = True
        await self.interrupt()

    async def add_tool_result(
        self,
        tool_call_id: str,
        content: Any,
        name: str | None = None,
        *,
        is_error: bool = False,
    ) -> None:
        """Add the result of a call that the model asked for; the next query sends it.

        A string is sent as it is, everything else as JSON. *is_error* marks the call as failed.
        """
        await self._load()
        call = self._find_call(tool_call_id)
        name = name or (call or {}).get("name")
        text = as_text(content) if content is not None else "null"
        self._history.add_result(ToolResult(tool_call_id, text, is_error), name)
        await self._save_waiting()
        rules = RuleChain([self.options.rules()]) if self._node is None else self._node.rule_chain
        if rules.asks(HOOK_POST_TOOL_USE):
            written = parse_json_object(call["arguments"]) if call else None
            given = self._inputs.get(tool_call_id) or written or {}
            event = PostToolUseEvent(
                name or "unknown",
                dict(given),
                content,
                tool_call_id,
                list(self.message_history),
                is_error,
            )
            decision = await rules.decide(HOOK_POST_TOOL_USE, event)
            if decision.modified_result is not None:
                text = as_text(decision.modified_result)
                revised = ToolResult(tool_call_id, text, is_error)
                self._history.add_result(revised, name, is_revised=True)
                await self._save_waiting()

    async def _save_waiting(self) -> None:
        if self._saver is not None:
            self._saver.keep(self._history.waiting)
            await self._saver.flush()

    def _find_call(self, id: str) -> Message | None:
        """Return the newest call with this id in the history."""
        for message in reversed(self.message_history):
            for one in plain(message):
                for call in one.get("tool_calls") or ():
                    if call.get("id") == id:
                        return call["function"]
        return None

    # Sessions

    async def fork(self, session: str | None = None) -> "Client":
        """Return a client with a copy of this conversation, saved as *session* if that is given.

        Raises:
            DuplicateNameError: there is a session of that name (a ValueError).
            UsageError: *session* is given, but this client has no session itself.
        """
        await self._load()
        if session is not None and self._saver is None:
            raise UsageError("this conversation is not saved: give the Client a session, too")
        store = self._own_store if self._store == ":memory:" else self._store
        other = Client(copy(self.options), session=session, store=store if session else None)
        other._history = self._history.copied()
        try:
            if other._saver is not None and self._saver is not None:
                # After a conflict, the fork still has the conversation as this client knows it.
                with suppress(SessionConflictError):
                    await self._saver.flush()
                await other._save_as_fork(self._saver.name, other._saver)
        except BaseException:
            other._close_store()
            raise
        other._loaded = True
        return other

    async def _save_as_fork(self, name: str, saver: Saver) -> None:
        """Save this conversation as a fork of the session *name*."""
        await saver.branch(name)
        if self._history.exchanges:
            saver.replace(self._history.exchanges)
            saver.keep(self._history.waiting)
        await saver.flush()

    async def _load(self) -> None:
        if self._loaded or self._saver is None:
            return
        saved = await self._saver.load()
        if not self._loaded:  # by another task meanwhile
            self._history.restore(saved.exchanges, saved.unsent)
            self._loaded = True

    # Opening and closing

    def __del__(self) -> None:
        if (turn := getattr(self, "_turn", None)) is not None:
            with suppress(ClosedError):  # its event loop is closed, which ended the turn
                self._interrupt_unread(turn)

    async def close(self) -> None:
        """Interrupt the turn that is under way, and save what has not been saved."""
        try:
            await self._finish()
        finally:
            self._close_store()

    def _sessions(self) -> Sessions:
        """Return the sessions of the store; open it if it is a path or a URL."""
        store = self._store
        if is_url(store):
            store = self._own_store = open_store(store)
        elif store is None or isinstance(store, str | os.PathLike):
            self._own_store = SessionStore(store)
            return self._own_store
        if isinstance(store, SavedChats):
            return store
        if (found := getattr(store, "sessions", None)) is None:
            raise InvalidValueError(
                f"store must be the path of a file or a store that has sessions, got {store!r}"
            )
        return found

    def _close_store(self) -> None:
        if self._own_store is not None:
            self._own_store.close()

    async def _finish(self) -> None:
        saver = self._saver
        known_failure = None if saver is None else saver.failure
        try:
            await self._supersede()
            self._forget_turn()
            if saver is not None:
                self._queue_edits(saver)
                await saver.flush()
        except StoreError:
            if known_failure is None:
                raise
            # The program got this failure before, so close() does not raise it again.
            log.warning("%r was not saved to its end: %s", self, known_failure)

    def _queue_edits(self, saver: Saver) -> None:
        """Queue a history for saving that was edited after the last answer."""
        history = self._history
        if self._loaded:
            history.catch_up()
        if history.rewritten:
            saver.replace(history.exchanges)
            saver.keep(history.waiting)
            history.rewritten = False

    async def __aenter__(self) -> Self:
        await self._load()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
