"""``ChatTurn``: the state that a client and the call of its turn share."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treefold.chat.block_stream import BlockStream
from treefold.chat.blocks import ToolUseBlock
from treefold.chat.history import ChatHistory
from treefold.chat.options import AgentOptions
from treefold.chat.parts import block_of
from treefold.chat.saving import Saver
from treefold.core.call_request import CallRequest
from treefold.core.deps import DepsSource
from treefold.core.exchange import Exchange
from treefold.core.function import Function, Node, RunContext
from treefold.core.transcript import ToolUse
from treefold.models.reading import read_exchanges


@dataclass(slots=True)
class ChatTurn:
    """The state that a client and the call of its turn share.

    Attributes:
        options: those of the client.
        history: that of the client.
        prompt: what the person said; empty to send the results of calls alone.
        inputs: the arguments of the calls that were yielded, by the id of the call.
        saver: saves the conversation, if it has a session.
        opened: done when the provider has accepted the request, or the turn has ended.
        block_stream: the blocks for the reader.
        accepted: whether the provider has accepted the request.
        begun: whether the function has been run; it can be run only once.
        interrupted: whether the client stopped the turn.
        superseded: whether it did so for another query, or to close.
    """

    options: AgentOptions
    history: ChatHistory
    prompt: str
    inputs: dict[str, Mapping[str, Any]]
    saver: Saver | None
    opened: asyncio.Future[None]
    block_stream: BlockStream = field(default_factory=BlockStream)
    accepted: bool = False
    begun: bool = False
    interrupted: bool = False
    superseded: bool = False

    def start(self, function: Function, ctx: RunContext) -> Node:
        """Start the turn as a call, and return its node."""
        args = {"prompt": self.prompt}
        if self.saver is not None:
            args["session"] = self.saver.name
        request = CallRequest(function, args, rules=self.options.rules(), prior=self)
        request.deps = DepsSource.of(self.options.deps)
        node = ctx.start(request)
        # A failure is reported by receive_messages(), or logged by the client if it is not read.
        node.asked_for = True
        if node.state.final and not self.begun:  # an earlier process ran it
            self.recover(node.exchanges)
        node.add_end_callback(self._ended)
        return node

    def recover(self, exchanges: Sequence[Exchange], *, is_followed: bool = True) -> None:
        """Pass the responses of an earlier process to the reader, and add them to the history.

        A conversation with a saved session has them in its history already. The calls of the last
        response are passed on here only if the earlier process dealt with them (*is_followed*);
        otherwise the loop still has to, and passes them on then.
        """
        self.accepted = self.accepted or bool(exchanges)
        said = read_exchanges(exchanges)
        if self.saver is None:
            self.history.recover(exchanges, said)
        if not is_followed:
            said = [*said[:-1], [part for part in said[-1] if not isinstance(part, ToolUse)]]
        for part in itertools.chain.from_iterable(said):
            if (block := block_of(part)) is None:
                continue
            if isinstance(block, ToolUseBlock):
                self.inputs[block.id] = dict(block.input)
            self.block_stream.put(block)

    def _ended(self) -> None:
        self.note_opened()
        self.block_stream.close()

    def note_opened(self) -> None:
        """Note that the provider has accepted the request, or will not."""
        if not self.opened.done():
            self.opened.set_result(None)

    async def save(self) -> None:
        """Save what is new, if the conversation has a session."""
        if self.saver is not None:
            await self.saver.flush()
