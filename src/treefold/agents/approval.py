"""Approval by rules, hooks and people: of a call that a model asks for, and of a prompt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treefold.core.agent_errors import DeniedError
from treefold.core.conversation import AgentConversation
from treefold.core.decisions import HOOK_USER_PROMPT_SUBMIT, HookDecision, UserPromptSubmitEvent
from treefold.core.errors import InvalidArgumentsError
from treefold.core.function import RunContext
from treefold.core.messages import Message
from treefold.core.question import ALLOW, DENY, QuestionKind


@dataclass(frozen=True, slots=True)
class Verdict:
    """A gate that denies the call, or asks a person to approve it."""

    name: str
    refusal: str | None
    question: str = ""

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        """Return the arguments to make the call with.

        Raises:
            DeniedError: the call was denied.
        """
        if self.refusal is not None:
            raise DeniedError(self.name, self.refusal)
        answer = await ctx.ask_person(QuestionKind.Approval, self.question, (ALLOW, DENY))
        if answer.text == DENY:
            raise DeniedError(self.name, answer.reason or "a person said no")
        return ctx.node.inputs if answer.args is None else answer.args


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


def _edited_prompt(args: Mapping[str, Any]) -> str:
    """Return the prompt that a person has edited."""
    prompt = args.get("prompt")
    if len(args) != 1 or not isinstance(prompt, str):
        raise InvalidArgumentsError("a prompt is edited by {'prompt': 'the new text'}")
    return prompt
