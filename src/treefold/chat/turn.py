"""Runs one turn of a chat as a call.

The turn is driven by the model loop of ``agents``. What differs: blocks are passed to a reader
while they arrive, calls may be left to the program, and what an agent decides by itself (to ask
again after an empty answer, to fail after too many steps) is left to the person.
"""

import asyncio
import itertools
import logging
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from treefold.agents.calls import Calls, Gate, MadeCall, Verdict, cut
from treefold.agents.loop import Inputs, Loop, Task, provider_fault
from treefold.chat.block_stream import BlockStream
from treefold.chat.blocks import (
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    ToolUseDelta,
    ToolUseError,
)
from treefold.chat.conversation import Conversation
from treefold.chat.options import AgentOptions
from treefold.chat.parts import block_of, fault_of
from treefold.chat.saving import Saver
from treefold.core import model_events
from treefold.core.agent_errors import BlockedError, BudgetExceeded, DeniedError
from treefold.core.agent_events import ResponseCompleted
from treefold.core.errors import (
    DefinitionError,
    InvalidValueError,
    ModelProviderException,
    TreefoldError,
    UsageError,
)
from treefold.core.exchange import Exchange
from treefold.core.failures import failed
from treefold.core.function import Function, ModelFinder, RunContext
from treefold.core.messages import Message
from treefold.core.model_events import AttemptFailed, ModelEvent, Noticed
from treefold.core.parameter import Parameter
from treefold.core.parameters import Parameters
from treefold.core.provider_errors import provider_exception
from treefold.core.transcript import ModelText, ToolResult, ToolUse
from treefold.models.reading import read_exchanges
from treefold.runtime.call_request import CallRequest
from treefold.runtime.calls.node import CallNode
from treefold.runtime.context import Context
from treefold.runtime.conversations.agent_node import AgentNode
from treefold.runtime.loops.loop_handle import settle

log = logging.getLogger("treefold.chat")

NAME: Final = "chat turn"  # has a space, so that no function that a model can call has this name


@dataclass(slots=True)
class ChatTurn:
    """The state that a client and the call of its turn share.

    Attributes:
        options: those of the client.
        conversation: that of the client.
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
    conversation: Conversation
    prompt: str
    inputs: dict[str, Mapping[str, Any]]
    saver: Saver | None
    opened: asyncio.Future[None]
    block_stream: BlockStream = field(default_factory=BlockStream)
    accepted: bool = False
    begun: bool = False
    interrupted: bool = False
    superseded: bool = False

    def start(self, function: "ChatFunction", ctx: Context) -> CallNode:
        """Start the turn as a call, and return its node."""
        args = {"prompt": self.prompt}
        if self.saver is not None:
            args["session"] = self.saver.name
        node = ctx.start(CallRequest(function, args, rules=self.options.rules(), past=self))
        # A failure is reported by receive_messages(), or logged by the client if it is not read.
        node.asked_for = True
        if node.has_ended:
            self.recover(node.record.conversation.exchanges)
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
            self.conversation.recover(exchanges, said)
        if not is_followed:
            said = [*said[:-1], [part for part in said[-1] if not isinstance(part, ToolUse)]]
        for part in itertools.chain.from_iterable(said):
            if (block := block_of(part)) is None:
                continue
            if isinstance(block, ToolUseBlock):
                self.inputs[block.id] = dict(block.input)
            self.block_stream.put(block)

    def _ended(self) -> None:
        settle(self.opened)
        self.block_stream.close()

    async def save(self) -> None:
        """Save what is new, if the conversation has a session."""
        if self.saver is not None:
            await self.saver.flush()


class ChatFunction(Function):
    """The function of a turn: each call of it is one turn of a client."""

    is_agent = True

    def __init__(self, options: AgentOptions) -> None:
        super().__init__(NAME, "A person says something, and a model answers.")
        self._options = options
        self._tools = options.functions()

    @property
    def uses(self) -> Sequence[Function]:
        return self._tools

    @cached_property
    def parameters(self) -> Parameters:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Parameters(NAME, [Parameter("prompt", str), Parameter("session", str, "")])

    def faults(self, models: ModelFinder) -> list[str]:
        try:
            self._options.find_model(models).check(self._tools)
        except (DefinitionError, InvalidValueError) as error:
            return [str(error)]
        return []

    async def run(self, ctx: RunContext, args: Mapping[str, Any]) -> Any:
        node = ctx.node
        if not isinstance(node, AgentNode) or not isinstance(ctx, Context):
            raise UsageError("a turn of a chat is begun by client.query()")
        turn: object = node.conversation.handed_over
        saved = isinstance(turn, ChatTurn) and turn.saver is not None and node.responses
        if not isinstance(turn, ChatTurn) or turn.begun or saved:
            raise UsageError("a turn of a chat cannot be resumed; call client.query() again")
        turn.begun = True
        try:
            loop = _ChatLoop(ctx, node, turn, self._tools)
        except TreefoldError as error:
            raise provider_fault(node, str(turn.options.model), error) from error
        return await loop.run()


class _ChatLoop(Loop):
    """The model loop with a reader: passes on blocks, and leaves decisions to the person."""

    def __init__(
        self, ctx: Context, node: AgentNode, turn: ChatTurn, tools: Sequence[Function]
    ) -> None:
        options = turn.options
        model = options.find_model(node.conversation.models)
        answers = node.conversation.in_place_of(model)
        self._opened_with: object = copy(options) if answers is model else answers
        task = Task(
            model=answers,
            system=options.system_prompt,
            prompt=turn.prompt,
            functions=tools,
            settings=options.settings(model),
            result=None,
            max_steps=options.max_tool_iterations,
            parallel_tools=False,
        )
        self._chat_calls = _ChatCalls(ctx, node, tools, turn)
        super().__init__(ctx, node, task, self._chat_calls)
        node.conversation.default_model = model  # for agents below that do not name a model
        self._turn = turn
        self._chat = turn.conversation
        self._asking: Inputs | None = None  # the inputs of the request under way
        self._text = ""  # the text of its response so far
        self._has_fragments = False  # whether fragments of its calls were passed on

    async def run(self) -> Any:
        try:
            return await super().run()
        except asyncio.CancelledError:
            # The text of an interrupted response counts as its answer.
            if self._asking is not None and self._text.strip():
                self._complete(self._conversation.keep(self._text, *self._asking))
            raise
        finally:
            self._chat.take_back(keep_prompt=self._turn.superseded)
            if self._turn.options.auto_execute_tools:
                # The program does not make these calls, so no result will come from it.
                self._answer_rest()

    def _answer_rest(self) -> None:
        if self._chat.answer_rest() and self._turn.saver is not None:
            self._turn.saver.keep(self._chat.waiting)

    async def _begin(self) -> None:
        task, turn = self._task, self._turn
        conversation = turn.conversation
        # Save what an earlier flush left: if that fails, it should fail before the next request.
        await turn.save()
        prior = self._conversation.prior
        if prior.exchanges:
            turn.recover(prior.exchanges, is_followed=prior.response is None)
            settle(turn.opened)
        conversation.catch_up()
        model, functions = task.model, task.functions
        settings = self._conversation.with_caching(task.settings, model, functions)
        try:
            session = conversation.open(model, task.system, functions, settings, self._opened_with)
        except Exception as error:
            raise provider_fault(self._node, model, error) from error
        self._conversation.take_over(session, model, task.system, functions, settings)
        if conversation.rewritten and turn.saver is not None:
            turn.saver.replace(session.exchanges)
            turn.saver.keep(conversation.waiting)
            conversation.rewritten = False
            await turn.save()

    async def _opening(self) -> Inputs:
        if self._conversation.prior.exchanges:
            return self._unanswered_results(self._conversation.prior.unsent)
        prompt = self._turn.prompt
        if prompt:
            try:
                prompt = await self._submitted(prompt)
            except DeniedError as error:
                raise BlockedError("Prompt", error.reason) from None
            if not prompt.strip():
                raise InvalidValueError("there is nothing to send: a hook left nothing of it")
        return self._chat.begin(prompt)

    def _unanswered_results(self, unsent: Inputs) -> Inputs:
        """Return the results that the earlier process sent without getting a response."""
        for result in unsent:
            if isinstance(result, ToolResult):
                self._chat.add_result(result)
        return self._chat.begin("") if unsent else ()

    def _history(self) -> list[Message]:
        return list(self._chat.messages)

    async def _request(self, inputs: Inputs) -> ResponseCompleted:
        response = await super()._request(inputs)
        await self._turn.save()
        return response

    async def _ask(self, inputs: Inputs, *, over_budget: bool) -> ResponseCompleted:
        self._asking, self._text, self._has_fragments = inputs, "", False
        response = await self._conversation.request(
            *inputs, over_budget=over_budget, on_event=self._hear
        )
        self._asking = None
        if not self._text and (text := _text(response)):
            # What was streamed as thinking turned out to be the answer.
            self._turn.block_stream.put(TextBlock(text))
        self._complete(response)
        return response

    def _complete(self, response: ResponseCompleted) -> None:
        self._chat.complete(response)
        if self._turn.saver is not None:
            self._turn.saver.append(response.exchange, self._turn.prompt)

    def _hear(self, event: ModelEvent) -> None:
        put = self._turn.block_stream.put
        if not isinstance(event, AttemptFailed | Noticed):
            self._turn.accepted = True
            settle(self._turn.opened)
        match event:
            case model_events.TextDelta() if event.text:
                self._text += event.text
                put(TextBlock(event.text))
            case model_events.ThinkingDelta():
                put(ThinkingBlock(event.text))
            case model_events.TextWasThinking():
                put(ThinkingBlock(self._text, was_text=True))
                self._text = ""
            case model_events.ToolUseDelta() if self._turn.options.tool_use_deltas:
                self._has_fragments = True
                put(ToolUseDelta(event.index, event.id, event.name, event.arguments))
            case AttemptFailed() if self._text or self._has_fragments:
                raise self._broke_off(event)
            case Noticed():
                log.warning("%s", event.text)
            case _:
                pass

    def _broke_off(self, failed: AttemptFailed) -> ModelProviderException:
        """Return the exception for a response that broke off after a part of it was read.

        It is not retried, because the reader would get the beginning twice.
        """
        model = self._task.model
        return provider_exception(
            type(model).__name__,
            model.name,
            f"{failed.failure.message} (the answer broke off in the middle, and nothing of it was"
            " kept: query again)",
            attempts=failed.attempt,
            inner=failed.inner,
        )

    def _speak_last(self, inputs: Inputs, exceeded: BudgetExceeded) -> Inputs:
        raise exceeded

    def _answer(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        return _text(response), ()

    async def _follow(self, response: ResponseCompleted) -> tuple[Any, Inputs]:
        if self._turn.options.auto_execute_tools:
            return await super()._follow(response)
        await self._chat_calls.pass_on(tuple(self._conversation.pending))
        return _text(response), ()

    def _out_of_steps(self) -> Any:
        most = self._turn.options.max_tool_iterations
        log.warning(
            "the model asked for calls %d times (max_tool_iterations), and the turn ends here;"
            " query('') continues it",
            most,
        )
        return ""


class _ChatCalls(Calls):
    """Makes the calls of a turn, or passes them to the reader, which makes them."""

    def __init__(
        self, ctx: Context, node: AgentNode, functions: Sequence[Function], turn: ChatTurn
    ) -> None:
        super().__init__(ctx, node, functions)
        self._turn = turn
        self._shown: set[str] = set()  # ids of calls that were passed to the reader
        self._denied: set[str] = set()  # ids of calls that were forbidden
        self._blocked: BlockedError | None = None  # ends the turn

    async def pass_on(self, calls: Sequence[ToolUse]) -> None:
        """Pass *calls* to the reader, which makes them.

        Raises:
            BlockedError: a call is forbidden, and ``on_blocked`` is "raise".
        """
        for call in calls:
            made = MadeCall(call, None)
            if call.fault is not None:
                self._fail(made, None)
                await self._keep(made)
                continue
            gate, args = await self._decide(call)
            try:
                edited = self._node.inputs if gate is None else await gate(self._node)
            except DeniedError as error:
                self._block(made, error)
                await self._keep(made)
                continue
            self._show(call, args if edited is self._node.inputs else edited)

    async def _begin(self, call: ToolUse, before: Sequence[MadeCall]) -> MadeCall:
        if call.fault is None and call.name not in self._functions:
            self._show(call, call.args)
        return await super()._begin(call, before)

    async def _announce(
        self, call: ToolUse, args: Mapping[str, Any], verdict: Verdict | None
    ) -> Gate | None:
        """Pass a call to the reader before it is made, but only once it is approved."""
        if verdict is None:
            await self._show_and_wait(call, args)
            return None

        async def decide(node: CallNode) -> Mapping[str, Any]:
            try:
                edited = await verdict(node)
            except DeniedError:
                self._denied.add(call.id)
                raise
            await self._show_and_wait(call, edited)
            return edited

        return decide

    async def _show_and_wait(self, call: ToolUse, args: Mapping[str, Any]) -> None:
        self._show(call, args)
        # The reader may call a model itself before it continues, and would need a lease.
        self._ctx.give_up_lease()
        # A reader that leaves its loop at this block prevents the call.
        await self._turn.block_stream.wait_until_read()

    def _show(self, call: ToolUse, args: Mapping[str, Any]) -> None:
        self._shown.add(call.id)
        self._turn.inputs[call.id] = dict(args)
        if dict(args) != dict(call.args):
            self._turn.conversation.revise_call(call.id, args)
        self._turn.block_stream.put(ToolUseBlock(call.id, call.name, dict(args)))

    def _block(self, made: MadeCall, error: DeniedError) -> None:
        """Set the result of a forbidden call; ``on_blocked`` decides what the reader gets."""
        text = _failure_text(error)
        if self._turn.options.on_blocked == "tell":
            self._turn.block_stream.put(ToolUseError(text, str(dict(made.args))))
        else:
            self._blocked = BlockedError("Tool use", error.reason)
        made.value = {"error": text, "tool": made.call.name}
        made.result = _failure(made.call, text)

    def _fail(self, made: MadeCall, failure: BaseException | None) -> None:
        call = made.call
        # A function that ran raises a DeniedError, too, if a call of its own was forbidden.
        if isinstance(failure, DeniedError) and call.id in self._denied:
            self._block(made, failure)
            return
        text = (
            fault_of(call) or self._unknown(call.name)
            if failure is None
            else _failure_text(failure)
        )
        raw = str(dict(made.args)) if call.fault is None else call.written
        self._turn.block_stream.put(ToolUseError(text, raw))
        if call.fault is not None and raw is not None:
            # The model has to see what it wrote to correct it.
            text = cut(f"{text}; the arguments were: {raw}")
        made.value = {"error": text, "tool": call.name}
        made.result = _failure(call, text)

    async def _keep(self, made: MadeCall) -> None:
        assert made.result is not None  # set when the call ended
        conversation, saver = self._turn.conversation, self._turn.saver
        if not made.result.is_error and made.call.id not in self._shown:
            # An earlier process made this call, after an approval.
            self._show(made.call, made.args)
        conversation.add_result(made.result)
        if saver is not None:
            saver.keep(conversation.waiting)
            await saver.flush()
        if self._blocked is not None:
            raise self._blocked

    def _messages(self) -> list[Message]:
        return list(self._turn.conversation.messages)

    def _unknown(self, name: str) -> str:
        return f"Tool '{name}' not found in registry"


def _failure(call: ToolUse, text: str) -> ToolResult:
    return ToolResult(call.id, failed(call.name, text), is_error=True)


def _failure_text(failure: BaseException) -> str:
    if isinstance(failure, DeniedError):
        return f"Tool use blocked: {failure.reason}"
    if isinstance(failure, KeyError):  # its text is only the key
        return cut(f"{type(failure).__name__}: {failure}")
    return cut(str(failure) or type(failure).__name__)


def _text(response: ResponseCompleted) -> str:
    return "".join(part.text for part in response.parts if isinstance(part, ModelText))
