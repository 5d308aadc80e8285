"""Make the calls that a model asks for: check whether they are allowed, run them, get results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from treefold.agents.approval import decide_call
from treefold.agents.bounds import Bounds, ReadResult, bounded
from treefold.agents.prompts import as_text
from treefold.agents.results import ReturnResult
from treefold.core.call_request import CallRequest, Gate
from treefold.core.conversation import AgentConversation, Inputs
from treefold.core.decisions import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    PostToolUseEvent,
    PreToolUseEvent,
)
from treefold.core.errors import CallError
from treefold.core.events import Failure
from treefold.core.fact import replace
from treefold.core.function import Function, Node, RunContext
from treefold.core.messages import Message
from treefold.core.question import REPORT, QuestionKey
from treefold.core.states import NodeState
from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.truncation import truncate_middle
from treefold.core.verdict import Verdict

_LONGEST: Final = 4000  # characters of an exception's message
_NOTHING: Final = "[it returned nothing]"


@dataclass(slots=True)
class MadeCall:
    """A call that a model asked for, and its result; *node* is None if it could not be made."""

    call: ToolUse
    node: Node | None
    result: ToolResult | None = None
    value: Any = None  # the result as hooks see it

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments that the call was made with."""
        return self.call.args if self.node is None else self.node.inputs

    def succeed(self, node: Node, bounds: Bounds | None = None) -> None:
        """Set the value of *node*, which has ended, as the result; *bounds* cut it."""
        self.value = node.outputs
        text = as_text(self.value) if self.value is not None else _NOTHING
        self.result = ToolResult(self.call.id, _shown(text, node, bounds))


class CallPolicy(Protocol):
    """Decides what happens around a call that a model asks for."""

    async def gate(
        self, call: ToolUse, args: Mapping[str, Any], verdict: Verdict | None
    ) -> Gate | None:
        """Return the gate of a call that is about to be made.

        *verdict* is the gate that rules and hooks demand.
        """
        ...

    async def settle(self, made: MadeCall, failure: BaseException | None) -> None:
        """Set the result of a call that has ended, or could not be made; *failure* is its error."""
        ...

    async def revise(self, result: ToolResult) -> None:
        """Note that a hook has replaced the result of a call, which is settled."""
        ...

    def messages(self) -> list[Message]:
        """Return the conversation so far, for hooks."""
        ...


class Calls:
    """Makes the calls of one agent, or of one turn of a chat."""

    def __init__(
        self,
        ctx: RunContext,
        conversation: AgentConversation,
        functions: Sequence[Function],
        policy: CallPolicy,
        bounds: Bounds | None = None,
    ) -> None:
        self._bounds = bounds
        self._ctx = ctx
        self._conversation = conversation
        self._functions = {function.name: function for function in functions}
        self._policy = policy
        self.results: Inputs = ()  # of the calls that were made last

    async def follow(self, calls: Sequence[ToolUse], *, at_once: bool) -> tuple[Any, Inputs]:
        """Make *calls* of the last response; return the agent's result, or the inputs to send.

        They run one after the other, or in parallel if *at_once*.

        Raises:
            AgentException: the agent gave up.
        """
        if self._bounds is not None:
            self._bounds.share(len(calls))
        made = await self._make(calls, at_once=at_once)
        self.results = [one.result for one in made if one.result is not None]
        for one in made:
            failure = None if one.node is None else one.node.exception
            # The agent gave up; all calls that it asked for have been made.
            if failure is not None and failure in self._conversation.resignations:
                raise failure
        raise_if_resigned(self._ctx, self._conversation)
        if (returned := _returned(made)) is not None:
            return returned.outputs, ()
        return None, self.results

    async def _make(self, calls: Sequence[ToolUse], *, at_once: bool) -> list[MadeCall]:
        made: list[MadeCall] = []
        for call in calls:
            one = await self._begin(call, made)
            made.append(one)
            if not at_once:
                await self._finish(one, made)
        if at_once:
            for one in made:
                await self._finish(one, made)
        return made

    async def _begin(self, call: ToolUse, before: Sequence[MadeCall]) -> MadeCall:
        function = self._functions.get(call.name)
        if function is None or call.fault is not None:
            return MadeCall(call, None)
        verdict, args = await self.decide(call)
        gate = await self._policy.gate(call, args, verdict)
        return MadeCall(call, self._start(function, call, args, gate, before))

    def _start(
        self,
        function: Function,
        call: ToolUse,
        args: Mapping[str, Any],
        gate: Gate | None,
        before: Sequence[MadeCall],
        *,
        again: Node | None = None,
    ) -> Node:
        tied = next((one.node for one in before if one.node not in {None, again}), None)
        return self._ctx.start(
            CallRequest(function, dict(args), tied_with=tied, tool_use_id=call.id, gate=gate)
        )

    async def decide(self, call: ToolUse) -> tuple[Verdict | None, Mapping[str, Any]]:
        """Return the gate that rules, hooks and its function demand, and the arguments."""
        rules, edited = self._conversation.rules, self._conversation.edited_args(call.id)
        args = call.args if edited is None else edited
        function = self._functions.get(call.name)
        # Returning the result has no effect outside, and without it the agent could not end. What
        # can be read on has been told to the model already, as far as hooks let it.
        if isinstance(function, ReturnResult | ReadResult):
            return None, args
        is_guarded = rules.asks(HOOK_PRE_TOOL_USE) or (function is not None and function.ask)
        # An earlier process has asked hooks and people, and they allowed it.
        if is_guarded and (made := self._conversation.made_args(call.id)) is not None:
            return self._forbidden(call), made
        history = self._policy.messages() if rules.asks(HOOK_PRE_TOOL_USE) else []
        event = PreToolUseEvent(call.name, dict(args), call.id, history)
        return await decide_call(function, event, rules)

    def _forbidden(self, call: ToolUse) -> Verdict | None:
        """Return the gate of a call that was allowed once, if rules forbid it by now."""
        reason = self._conversation.rules.forbids(call.name)
        return None if reason is None else Verdict(call.name, reason)

    async def _finish(self, made: MadeCall, batch: Sequence[MadeCall]) -> None:
        """Wait for a call, and set its result."""
        failure = None if made.node is None else await self._outcome(made, batch)
        await self._policy.settle(made, failure)
        if not isinstance(self._functions.get(made.call.name), ReturnResult):
            await self._call_post_hooks(made)

    async def _outcome(self, made: MadeCall, batch: Sequence[MadeCall]) -> BaseException | None:
        """Wait until the call has ended, with all retries; return its exception, if any."""
        assert made.node is not None  # checked by the caller
        while (failure := await _outcome(made.node)) is not None:
            if not self._conversation.pauses_on_tool_error or isinstance(failure, CallError):
                break
            fault = f"{made.call.name} failed: {error_text(failure)}"
            text = f"{fault}; resume calls it again, report tells the model"
            key = f"{QuestionKey.ToolCall}:{made.node.index}"
            if await self._conversation.pause(text, key, [REPORT]) == REPORT:
                break
            # A person has decided: no hook and no other person is asked.
            function, args, gate = made.node.function, made.node.inputs, self._forbidden(made.call)
            made.node = self._start(function, made.call, args, gate, batch, again=made.node)
        return failure

    async def _call_post_hooks(self, made: MadeCall) -> None:
        conversation, call = self._conversation, made.call
        rules, key = conversation.rules, f"{conversation.responses}/{call.id}"
        text = conversation.decisions.get((HOOK_POST_TOOL_USE, key))
        if text is None and rules.asks(HOOK_POST_TOOL_USE):
            event = PostToolUseEvent(
                call.name,
                dict(made.args),
                made.value,
                call.id,
                self._policy.messages(),
                is_error=made.result is not None and made.result.is_error,
            )
            decision = await rules.decide(HOOK_POST_TOOL_USE, event)
            if decision.modified_result is None:
                return
            text = as_text(decision.modified_result)
            conversation.note_decision(HOOK_POST_TOOL_USE, key, text)
        if text is not None and made.result is not None:
            if made.node is not None:
                text = _shown(text, made.node, self._bounds)
            made.result = replace(made.result, content=text)
            await self._policy.revise(made.result)


def _shown(text: str, node: Node, bounds: Bounds | None) -> str:
    """Return *text*, the result of *node*, cut to what a model may get of it."""
    return bounded(text, node) if bounds is None else bounds.cut(text, node)


async def _outcome(node: Node) -> BaseException | None:
    """Wait for *node*; return its exception, if any."""
    try:
        await node
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every failure is reported to the model
        return error
    return None


def _returned(made: Sequence[MadeCall]) -> Node | None:
    """Return the call that returned the agent's result, if there was one."""
    for one in made:
        node = one.node
        if node is None or not isinstance(node.function, ReturnResult):
            continue
        if node.state is NodeState.Success:
            return node
    return None


def raise_if_resigned(ctx: RunContext, conversation: AgentConversation) -> None:
    """Raise the exception that a function posted without raising it, if any."""
    for error in conversation.resignations:
        error.locate(ctx.frames())
        raise error


def error_text(error: BaseException) -> str:
    """Return *error* as a model sees it: its type and message, never the traceback."""
    return cut(str(Failure.of(error)))


def cut(text: str) -> str:
    """Return *text*, without its middle if it is very long."""
    return truncate_middle(text, _LONGEST)
