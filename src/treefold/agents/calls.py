"""Make the calls that a model asks for: check whether they are allowed, run them, get results."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from treefold.agents.history import History
from treefold.agents.prompts import as_text
from treefold.agents.results import ReturnResult
from treefold.core.agent_errors import DeniedError
from treefold.core.decisions import (
    HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE,
    HookDecision,
    PostToolUseEvent,
    PreToolUseEvent,
)
from treefold.core.errors import CallError
from treefold.core.events import Failure
from treefold.core.function import Function
from treefold.core.messages import Message
from treefold.core.question import ALLOW, DENY, REPORT, QuestionKey, QuestionKind
from treefold.core.suggestions import did_you_mean
from treefold.core.transcript import ToolResult, ToolUse
from treefold.core.truncation import truncate_middle
from treefold.runtime.call_request import CallRequest
from treefold.runtime.calls.node import CallNode
from treefold.runtime.context import Context
from treefold.runtime.conversations.agent_node import AgentNode
from treefold.runtime.questions.ask import ask, ask_to_resume

_LONGEST: Final = 4000  # characters of an exception's message
_NOTHING: Final = "[it returned nothing]"

Gate = Callable[[CallNode], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A gate that denies the call, or asks a person to approve it."""

    name: str
    refusal: str | None
    question: str = ""

    async def __call__(self, node: CallNode) -> Mapping[str, Any]:
        """Return the arguments to make the call with.

        Raises:
            DeniedError: the call was denied.
        """
        if self.refusal is not None:
            raise DeniedError(self.name, self.refusal)
        answer = await ask(node, QuestionKind.Approval, self.question, (ALLOW, DENY))
        if answer.text == DENY:
            raise DeniedError(self.name, answer.reason or "a person said no")
        return node.inputs if answer.args is None else answer.args


@dataclass(slots=True)
class MadeCall:
    """A call that a model asked for, and its result; *node* is None if it could not be made."""

    call: ToolUse
    node: CallNode | None
    result: ToolResult | None = None
    value: Any = None  # the result as hooks see it

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments that the call was made with."""
        return self.call.args if self.node is None else self.node.inputs


class Calls:
    """Makes the calls of one agent."""

    def __init__(self, ctx: Context, node: AgentNode, functions: Sequence[Function]) -> None:
        self._ctx = ctx
        self._node = node
        self._functions = {function.name: function for function in functions}
        self._history = History(node)

    async def make(self, calls: Sequence[ToolUse], *, at_once: bool) -> list[MadeCall]:
        """Make *calls* in order and return them with their results.

        They run one after the other, or in parallel if *at_once*.
        """
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
        verdict, args = await self._decide(call)
        gate = await self._announce(call, args, verdict)
        return MadeCall(call, self._start(function, call, args, gate, before))

    async def _announce(
        self, call: ToolUse, args: Mapping[str, Any], verdict: Verdict | None
    ) -> Gate | None:
        """Return the gate of a call that is about to be made; subclasses may wrap *verdict*."""
        return verdict

    def _start(
        self,
        function: Function,
        call: ToolUse,
        args: Mapping[str, Any],
        gate: Gate | None,
        before: Sequence[MadeCall],
        *,
        again: CallNode | None = None,
    ) -> CallNode:
        tied = next((one.node for one in before if one.node not in {None, again}), None)
        return self._ctx.start(
            CallRequest(function, dict(args), tied_with=tied, tool_use_id=call.id, gate=gate)
        )

    async def _decide(self, call: ToolUse) -> tuple[Verdict | None, Mapping[str, Any]]:
        """Return the gate of the call, if any, and the arguments to make it with."""
        rules, edited = self._node.rule_chain, self._node.edited_args(call.id)
        args = call.args if edited is None else edited
        # Returning the result has no effect outside, and without it the agent could not end.
        if isinstance(self._functions.get(call.name), ReturnResult):
            return None, args
        if (reason := rules.forbids(call.name)) is not None:
            return Verdict(call.name, reason), args
        if not rules.asks(HOOK_PRE_TOOL_USE):
            return None, args
        # Hooks may change their copy.
        copied = deepcopy(dict(args))
        event = PreToolUseEvent(call.name, copied, call.id, self._messages())
        decision = await rules.decide(HOOK_PRE_TOOL_USE, event)
        args = args if decision.modified_input is None else decision.modified_input
        return gate_for(decision, call.name), args

    async def _finish(self, made: MadeCall, batch: Sequence[MadeCall]) -> None:
        """Wait for a call, and set its result."""
        failure = None if made.node is None else await self._outcome(made, batch)
        if made.node is not None and failure is None:
            made.value = made.node.outputs
            text = as_text(made.value) if made.value is not None else _NOTHING
            made.result = ToolResult(made.call.id, text)
        else:
            self._fail(made, failure)
        await self._keep(made)
        if not isinstance(self._functions.get(made.call.name), ReturnResult):
            await self._call_post_hooks(made)

    async def _outcome(self, made: MadeCall, batch: Sequence[MadeCall]) -> BaseException | None:
        """Wait until the call has ended, with all retries; return its exception, if any."""
        assert made.node is not None  # checked by the caller
        while (failure := await _outcome(made.node)) is not None:
            if not self._node.services.pauses_on_tool_error or isinstance(failure, CallError):
                break
            fault = f"{made.call.name} failed: {error_text(failure)}"
            text = f"{fault}; resume calls it again, report tells the model"
            key = f"{QuestionKey.ToolCall}:{made.node.index}"
            if await ask_to_resume(self._node, text, key, [REPORT]) == REPORT:
                break
            function, args = made.node.function, made.node.inputs
            made.node = self._start(function, made.call, args, None, batch, again=made.node)
        return failure

    def _fail(self, made: MadeCall, failure: BaseException | None) -> None:
        """Set an error as the result: *failure*, or why the call could not be made."""
        text = made.call.fault or self._unknown(made.call.name)
        made.value = text if failure is None else error_text(failure)
        made.result = ToolResult(made.call.id, made.value, is_error=True)

    async def _keep(self, made: MadeCall) -> None:
        """Save a result; for agents there is nothing to do, since the next request contains it."""

    def _messages(self) -> list[Message]:
        """Return the conversation so far."""
        return self._history.messages()

    async def _call_post_hooks(self, made: MadeCall) -> None:
        rules, call = self._node.rule_chain, made.call
        if rules.asks(HOOK_POST_TOOL_USE):
            event = PostToolUseEvent(
                call.name,
                dict(made.args),
                made.value,
                call.id,
                self._messages(),
                is_error=made.result is not None and made.result.is_error,
            )
            await rules.decide(HOOK_POST_TOOL_USE, event)

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, self._functions, then=" ")
        known = ", ".join(self._functions) or "none"
        return f"there is no function {name!r}; {hint}there are: {known}"


async def _outcome(node: CallNode) -> BaseException | None:
    """Wait for *node*; return its exception, if any."""
    try:
        await node
    except (Exception, SystemExit) as error:  # noqa: BLE001 - every failure is reported to the model
        return error
    return None


def gate_for(decision: HookDecision, name: str) -> Verdict | None:
    """Return the gate for a call of the function *name* after this *decision*, if any."""
    if not decision.continue_:
        return Verdict(name, decision.reason or "a hook forbade it")
    return None if decision.ask is None else Verdict(name, None, decision.ask)


def error_text(error: BaseException) -> str:
    """Return *error* as a model sees it: its type and message, never the traceback."""
    return cut(str(Failure.of(error)))


def cut(text: str) -> str:
    """Return *text*, without its middle if it is very long."""
    return truncate_middle(text, _LONGEST)
