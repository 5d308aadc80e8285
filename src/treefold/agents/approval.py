"""Approval by rules, hooks and people: of calls that a model asks for, prompts, and of ending."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from treefold.core.conversation import AgentConversation
from treefold.core.decisions import (
    HOOK_PRE_TOOL_USE,
    HOOK_STOP,
    HOOK_SUBAGENT_STOP,
    HOOK_USER_PROMPT_SUBMIT,
    HookDecision,
    PreToolUseEvent,
    RuleChain,
    StopEvent,
    UserPromptSubmitEvent,
)
from treefold.core.errors import InvalidArgumentsError, InvalidValueError
from treefold.core.function import Function, RunContext
from treefold.core.messages import Message
from treefold.core.verdict import Verdict, approval_question

_MOST_CONTINUATIONS: Final = 10  # of one call, by hooks that do not let it end

log = logging.getLogger("treefold.agents")


async def decide_call(
    function: Function | None,
    event: PreToolUseEvent,
    rules: RuleChain,
) -> tuple[Verdict | None, Mapping[str, Any]]:
    """Return the gate of a call that a model asks for, if any, and the arguments to call with.

    Rules can forbid it, hooks decide about it, and its function may want a person to approve it.
    No hook can allow what the function asks about.
    """
    if (reason := rules.forbids(event.tool_name)) is not None:
        return Verdict(event.tool_name, reason), event.tool_input
    decision = await rules.decide(HOOK_PRE_TOOL_USE, event)
    args = event.tool_input if decision.modified_input is None else decision.modified_input
    asked = None if function is None else await approval_question(function, args)
    if asked is not None:
        decision = HookDecision(ask=asked).after(decision) if decision.continue_ else decision
    return gate_for(decision, event.tool_name), args


class ModelCallGate:
    """The gate of a top-level call that a model outside of this program asks for."""

    def __init__(self, rules: RuleChain) -> None:
        self._rules = rules

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        """Return the arguments to make the call with.

        Raises:
            DeniedError: the call was denied.
        """
        node = ctx.node
        event = PreToolUseEvent(node.function.name, dict(node.inputs), node.tool_use_id or "")
        verdict, args = await decide_call(node.function, event, self._rules)
        if verdict is None:
            return args
        edited = await verdict(ctx)
        return args if edited is node.inputs else edited


def gate_for(decision: HookDecision, name: str) -> Verdict | None:
    """Return the gate for a call of the function *name* after this *decision*, if any."""
    if not decision.continue_:
        return Verdict(name, decision.reason or "a hook forbade it")
    return None if decision.ask is None else Verdict(name, None, decision.ask)


async def approve_prompt(
    ctx: RunContext,
    conversation: AgentConversation,
    prompt: str,
    messages: Callable[[], list[Message]],
) -> str:
    """Return the prompt after the hooks, and a person if they ask one, have approved or changed it.

    *messages* returns the conversation so far.

    Raises:
        DeniedError: the prompt was denied.
    """
    rules = conversation.rules
    if not rules.asks(HOOK_USER_PROMPT_SUBMIT):
        return prompt
    event = UserPromptSubmitEvent(prompt, messages())
    decision = await rules.decide(HOOK_USER_PROMPT_SUBMIT, event)
    prompt = prompt if decision.modified_prompt is None else decision.modified_prompt
    node = ctx.node
    if (gate := gate_for(decision, node.function.name)) is not None:
        edited = await gate(ctx)
        prompt = prompt if edited is node.inputs else _edited_prompt(edited)
    return prompt


async def continuation(
    ctx: RunContext,
    conversation: AgentConversation,
    result: Any,
    messages: Callable[[], list[Message]],
) -> str | None:
    """Return what hooks tell an agent that has its *result* to do next; None if it may end.

    *messages* returns the conversation so far.
    """
    hook = HOOK_SUBAGENT_STOP if conversation.is_below_agent else HOOK_STOP
    key, decisions = str(conversation.responses), conversation.decisions
    if (recorded := decisions.get((hook, key))) is not None:
        return recorded
    if not conversation.rules.asks(hook):
        return None
    name = ctx.node.function.name
    count = sum(one == hook for one, _ in decisions)
    if count >= _MOST_CONTINUATIONS:
        log.warning("%s ends now: its %s hooks let it continue %d times", name, hook, count)
        return None
    event = StopEvent(name, result, messages(), count)
    decision = await conversation.rules.decide(hook, event)
    if not decision.continue_:
        raise InvalidValueError(
            f"a {hook} hook returns HookDecision(modified_prompt=...) to let an agent continue, or"
            " None to let it end; continue_=False means neither"
        )
    if not (prompt := decision.modified_prompt) or not prompt.strip():
        return None
    conversation.note_decision(hook, key, prompt)
    return prompt


def _edited_prompt(args: Mapping[str, Any]) -> str:
    """Return the prompt that a person has edited."""
    prompt = args.get("prompt")
    if len(args) != 1 or not isinstance(prompt, str):
        raise InvalidArgumentsError("a prompt is edited by {'prompt': 'the new text'}")
    return prompt
