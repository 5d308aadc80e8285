"""``TurnCalls``: the calls of a turn, which are made here or left to the program."""

from collections.abc import Mapping, Sequence
from typing import Any

from treefold.agents.calls import Calls, MadeCall, cut
from treefold.chat.blocks import ToolUseBlock, ToolUseError
from treefold.chat.parts import fault_of
from treefold.chat.turn import ChatTurn
from treefold.core.agent_errors import BlockedError, DeniedError
from treefold.core.call_request import Gate
from treefold.core.conversation import AgentConversation, Inputs
from treefold.core.fact import replace
from treefold.core.failures import failed
from treefold.core.function import Function, RunContext
from treefold.core.messages import Message
from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.verdict import Verdict


class TurnCalls:
    """Passes each call to the reader before it is made, and keeps its result in the history."""

    def __init__(
        self,
        ctx: RunContext,
        conversation: AgentConversation,
        functions: Sequence[Function],
        turn: ChatTurn,
    ) -> None:
        self._ctx = ctx
        self._turn = turn
        self._conversation = conversation
        self._functions = functions
        self._shown: set[str] = set()  # ids of calls that were passed to the reader
        self._denied: set[str] = set()  # ids of calls that were forbidden
        self._blocked: BlockedError | None = None  # ends the turn

    async def make(self) -> tuple[Any, Inputs]:
        """Make the calls of the last response, and return the inputs to send next."""
        return await self._calls().follow(self._parsed(), at_once=False)

    async def leave(self) -> None:
        """Leave the calls of the last response to the program: pass them to the reader.

        Raises:
            BlockedError: a call is forbidden, and ``on_blocked`` is "raise".
        """
        ctx, calls = self._ctx, self._calls()
        for call in self._parsed():
            gate, args = await calls.decide(call)
            try:
                edited = ctx.node.inputs if gate is None else await gate(ctx)
            except DeniedError as error:
                self._denied.add(call.id)
                await self.settle(MadeCall(call, None), error)
                continue
            self._show(call, args if edited is ctx.node.inputs else edited)

    def _parsed(self) -> list[ToolUse]:
        """Return the calls of the last response; pass what could not be parsed to the reader."""
        calls = list(self._conversation.pending)
        for call in calls:
            if (fault := fault_of(call)) is not None:
                self._turn.block_stream.put(ToolUseError(fault, call.written))
        return [call for call in calls if call.fault is None]

    def _calls(self) -> Calls:
        return Calls(self._ctx, self._conversation, self._functions, self)

    # What happens around a call

    async def gate(
        self, call: ToolUse, args: Mapping[str, Any], verdict: Verdict | None
    ) -> Gate | None:
        """Pass a call to the reader before it is made, but only once it is approved."""
        if verdict is None:
            await self._show_and_wait(call, args)
            return None

        async def decide(ctx: RunContext) -> Mapping[str, Any]:
            try:
                edited = await verdict(ctx)
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
            self._turn.history.revise_call(call.id, args)
        self._turn.block_stream.put(ToolUseBlock(call.id, call.name, dict(args)))

    async def settle(self, made: MadeCall, failure: BaseException | None) -> None:
        """Set the result of a call, add it to the history, and save it.

        Raises:
            BlockedError: the call was forbidden, and ``on_blocked`` is "raise".
        """
        call = made.call
        if made.node is None and failure is None:
            failure = await self._judge_unknown(made)
        if made.node is not None and failure is None:
            made.succeed(made.node)
            if call.id not in self._shown:
                # An earlier process made this call, after an approval.
                self._show(call, made.args)
        # A function that ran raises a DeniedError, too, if a call of its own was forbidden.
        elif isinstance(failure, DeniedError) and call.id in self._denied:
            self._block(made, failure)
        else:
            self._fail(made, failure)
        assert made.result is not None  # it was set above
        await self.revise(made.result)
        if self._blocked is not None:
            raise self._blocked

    async def _judge_unknown(self, made: MadeCall) -> DeniedError | None:
        """Let hooks decide about a call of a function that does not exist, then pass it on.

        No person is asked, because it cannot be made. For the same reason the model is told that
        there is no such function, rather than that a rule forbids it.
        """
        call, rules = made.call, self._conversation.rules
        if rules.forbids(call.name) is None:
            verdict, args = await self._calls().decide(call)
            if verdict is not None and verdict.refusal is not None:
                self._denied.add(call.id)
                return DeniedError(call.name, verdict.refusal)
            made.call = replace(call, args=args)
        self._show(call, made.call.args)
        return None

    async def revise(self, result: ToolResult) -> None:
        """Add *result* to the history, or replace an earlier one of the same call, and save it."""
        self._turn.history.add_result(result)
        if self._turn.saver is not None:
            self._turn.saver.keep(self._turn.history.waiting)
        await self._turn.save()

    def _block(self, made: MadeCall, error: DeniedError) -> None:
        """Set the result of a forbidden call; ``on_blocked`` decides what the reader gets."""
        text = _failure_text(error)
        if self._turn.options.on_blocked == "tell":
            self._turn.block_stream.put(ToolUseError(text, str(dict(made.args))))
        else:
            self._blocked = BlockedError("Tool use", error.reason)
        _set_failure(made, text)

    def _fail(self, made: MadeCall, failure: BaseException | None) -> None:
        """Set the result of a call that failed, or could not be made."""
        if failure is not None:
            text = _failure_text(failure)
        else:
            text = f"Tool '{made.call.name}' not found in registry"
        self._turn.block_stream.put(ToolUseError(text, str(dict(made.args))))
        _set_failure(made, text)

    def messages(self) -> list[Message]:
        """Return the history, for hooks."""
        return list(self._turn.history.messages)


def _set_failure(made: MadeCall, text: str) -> None:
    made.value = {"error": text, "tool": made.call.name}
    made.result = ToolResult(made.call.id, failed(made.call.name, text), is_error=True)


def _failure_text(failure: BaseException) -> str:
    if isinstance(failure, DeniedError):
        return f"Tool use blocked: {failure.reason}"
    if isinstance(failure, KeyError):  # its text is only the key
        return cut(f"{type(failure).__name__}: {failure}")
    return cut(str(failure) or type(failure).__name__)
