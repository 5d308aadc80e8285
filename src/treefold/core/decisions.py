"""Allowed tools and decision hooks, which decide about each call that a model asks for.

A runtime has them, and so may a client inside it; they apply to every call below.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import isawaitable, signature
from typing import Any, Final

from treefold.core.errors import InvalidValueError
from treefold.core.scalars import exact_number
from treefold.core.suggestions import did_you_mean

HOOK_PRE_TOOL_USE: Final = "pre_tool_use"
HOOK_POST_TOOL_USE: Final = "post_tool_use"
HOOK_USER_PROMPT_SUBMIT: Final = "user_prompt_submit"
HOOK_STOP: Final = "stop"
HOOK_SUBAGENT_STOP: Final = "subagent_stop"

# The hooks, and the names that they have in claude-agent-sdk, which are accepted, too.
_NAMES: Final = {
    HOOK_PRE_TOOL_USE: "PreToolUse",
    HOOK_POST_TOOL_USE: "PostToolUse",
    HOOK_USER_PROMPT_SUBMIT: "UserPromptSubmit",
    HOOK_STOP: "Stop",
    HOOK_SUBAGENT_STOP: "SubagentStop",
}
_OF_TOOLS: Final = (HOOK_PRE_TOOL_USE, HOOK_POST_TOOL_USE)
_ALL: Final = "*"  # the matcher of every tool
_OTHER_NAMES: Final = {other: name for name, other in _NAMES.items()}


@dataclass(slots=True, frozen=True)
class HookDecision:
    """The decision of a decision hook.

    A hook that returns None leaves the decision to the next hook. The first HookDecision is final;
    an empty one allows the call or prompt.

    Attributes:
        continue_: False denies the call or prompt, for *reason*.
        modified_input: the arguments to use instead; a client's history shows these.
        modified_prompt: the prompt to use instead; from a stop hook, what to tell the agent, which
            then continues instead of ending.
        reason: why it was denied.
        ask: a question for a person, who then decides.
        modified_result: from a hook after a call, what the model gets as the result instead: text,
            or a value that is sent as JSON. The call itself keeps its result.

    Example:
        >>> from treefold import HookDecision
        >>> HookDecision(continue_=False, reason="not on production").continue_
        False
    """

    continue_: bool = True
    modified_input: Mapping[str, Any] | None = None
    modified_prompt: str | None = None
    reason: str | None = None
    ask: str | None = None
    modified_result: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.modified_input, Mapping | None):
            raise InvalidValueError(
                f"arguments go by name, {{'name': value}}: not {self.modified_input!r}"
            )
        for text in self.modified_prompt, self.reason, self.ask:
            if not isinstance(text, str | None):
                raise InvalidValueError(
                    f"a decision's prompt, reason and question are text: {text!r}"
                )

    def after(self, earlier: "HookDecision") -> "HookDecision":
        """Return *earlier*, the decision of an outer level, combined with this one.

        Changes of this decision replace those of the earlier one; both questions are asked.
        """
        asks = [one.ask for one in (earlier, self) if one.ask is not None]
        return HookDecision(
            # The earlier decision allowed it; otherwise this hook would not have been called.
            self.continue_,
            earlier.modified_input if self.modified_input is None else self.modified_input,
            earlier.modified_prompt if self.modified_prompt is None else self.modified_prompt,
            earlier.reason if self.reason is None else self.reason,
            "\n".join(asks) if asks else None,
            earlier.modified_result if self.modified_result is None else self.modified_result,
        )


@dataclass(slots=True, frozen=True)
class PreToolUseEvent:
    """A model asks for a call that has not been made yet.

    ``tool_input`` is what the model wrote; it is validated when the call is made.

    Example:
        >>> from treefold import PreToolUseEvent
        >>> PreToolUseEvent("bash", {"command": "ls"}, "call_1").tool_input["command"]
        'ls'
    """

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(slots=True, frozen=True)
class PostToolUseEvent:
    """A call that a model asked for has ended, or was denied.

    ``tool_result`` is its value. If there is none, it is the error text that the model gets
    instead, and ``is_error`` is True. The hook may return a HookDecision with a
    ``modified_result``; nothing else of its decision has an effect, since the call has been made.

    Example:
        >>> from treefold import PostToolUseEvent
        >>> PostToolUseEvent("add", {"a": 1, "b": 2}, 3, "call_1").tool_result
        3
    """

    tool_name: str
    tool_input: dict[str, Any]
    tool_result: Any
    tool_use_id: str
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    is_error: bool = False


@dataclass(slots=True, frozen=True)
class UserPromptSubmitEvent:
    """A prompt is about to be sent to a model.

    Example:
        >>> from treefold import UserPromptSubmitEvent
        >>> UserPromptSubmitEvent("Delete it all").prompt
        'Delete it all'
    """

    prompt: str
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(slots=True, frozen=True)
class StopEvent:
    """An agent has its result and is about to end.

    The hook "stop" gets it for agents that code or a person called, "subagent_stop" for those that
    were called below another agent. A HookDecision with a ``modified_prompt`` tells the agent to
    continue with that; ``continuations`` is how often hooks have done so in this call, which they
    can do ten times.

    Example:
        >>> from treefold import StopEvent
        >>> StopEvent("fix_bug", "It is fixed.").continuations
        0
    """

    agent: str
    result: Any
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    continuations: int = 0


HookEvent = PreToolUseEvent | PostToolUseEvent | UserPromptSubmitEvent | StopEvent
HookHandler = Callable[[Any], Awaitable[HookDecision | None]]


@dataclass(slots=True, frozen=True)
class HookMatcher:
    """Decision hooks that are asked about some tools only.

    Attributes:
        matcher: a regular expression for whole names of tools, such as "bash|text_editor"; None
            or "*" for every tool.
        hooks: the hooks, in order.
        timeout: seconds that each may take, more than 0. One that takes longer ends the agent, as
            one that raises an exception does; None for no limit.

    Example:
        >>> from treefold import HookDecision, HookMatcher
        >>> async def approve(event):
        ...     return HookDecision(ask=f"May it call {event.tool_name}?")
        >>> HookMatcher("bash|text_.*", [approve]).applies_to("text_editor")
        True
    """

    matcher: str | None = None
    hooks: Sequence[HookHandler] = ()
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.hooks, Sequence) or not all(map(callable, self.hooks)):
            raise InvalidValueError(f"a HookMatcher has a list of functions, not {self.hooks!r}")
        try:
            re.compile(self.matcher or "")
        except (re.error, TypeError):
            if self.matcher != _ALL:
                raise InvalidValueError(
                    f"the matcher {self.matcher!r} is not a regular expression for names of tools,"
                    " such as 'bash|text_editor'"
                ) from None
        for handler in self.hooks:
            _check_takes_event(handler)
        object.__setattr__(self, "timeout", _checked_timeout(self.timeout))

    def applies_to(self, tool: str) -> bool:
        """Whether the hooks are asked about this tool."""
        if not self.matcher or self.matcher == _ALL:
            return True
        return re.fullmatch(self.matcher, tool) is not None


Hooks = Mapping[str, Sequence[HookHandler | HookMatcher]]


@dataclass(slots=True, frozen=True)
class Rules:
    """The allowed tools and decision hooks of one runtime or client."""

    allowed: frozenset[str] | None = None  # None: everything that is not disallowed
    disallowed: frozenset[str] = frozenset()
    hooks: Mapping[str, Sequence[HookMatcher]] = field(
        default_factory=dict[str, Sequence[HookMatcher]]
    )

    @classmethod
    def of(
        cls, allowed: Iterable[Any] | None, disallowed: Iterable[Any], hooks: Hooks | None
    ) -> "Rules":
        """Return the rules made from these options.

        Raises:
            InvalidValueError: an option is of the wrong type, or a hook name is unknown.
        """
        if not isinstance(hooks, Mapping | None):
            raise InvalidValueError(
                f"hooks go by name, {{HOOK_PRE_TOOL_USE: [...]}}: not {hooks!r}"
            )
        return cls(
            None if allowed is None else _names(allowed), _names(disallowed), _by_name(hooks or {})
        )

    def forbids(self, name: str) -> str | None:
        """Return why a function may not be called, or None if it may."""
        if name in self.disallowed:
            return "it is one of disallowed_tools"
        if self.allowed is not None and name not in self.allowed:
            return f"it is none of allowed_tools ({', '.join(sorted(self.allowed)) or 'none'})"
        return None

    async def decide(self, hook: str, event: HookEvent) -> HookDecision:
        """Call the hooks of that name in order and return the first decision.

        Exceptions of hooks propagate.
        """
        tool = getattr(event, "tool_name", "")
        for one in self.hooks.get(hook, ()):
            for handler in one.hooks if one.applies_to(tool) else ():
                if (decision := await _asked(handler, event, one.timeout)) is not None:
                    return decision
        return HookDecision()


class RuleChain(tuple[Rules, ...]):
    """The rules that apply to one call: the runtime's, then those of each client above it.

    Each can forbid more than those before it; none can allow what an earlier one forbids.
    """

    __slots__ = ()

    def forbids(self, name: str) -> str | None:
        """Return why a function may not be called, or None if it may."""
        return next((why for rules in self if (why := rules.forbids(name)) is not None), None)

    def asks(self, hook: str) -> bool:
        """Whether there is a hook of that name."""
        return any(rules.hooks.get(hook) for rules in self)

    async def decide(self, hook: str, event: HookEvent) -> HookDecision:
        """Call the hooks of each level in turn; each level sees the changes of those before it."""
        decided = HookDecision()
        for rules in self:
            decision = await rules.decide(hook, event)
            decided = decision.after(decided)
            if not decision.continue_:
                break
            event = _changed(event, decision)
        return decided


async def _asked(
    handler: HookHandler, event: HookEvent, seconds: float | None
) -> HookDecision | None:
    """Return the decision of one hook, which may change its copy of the arguments."""
    if isinstance(event, PreToolUseEvent | PostToolUseEvent):
        event = replace(event, tool_input=deepcopy(event.tool_input))
    deciding = handler(event)
    if not isawaitable(deciding):
        raise InvalidValueError(f"a decision hook is an async function: {handler!r} is not")
    async with asyncio.timeout(seconds):
        decision: object = await deciding
    if not isinstance(decision, HookDecision | None):
        raise InvalidValueError(f"a decision hook returns a HookDecision or None, not {decision!r}")
    return decision


def _checked_timeout(timeout: Any) -> float | None:
    """Return the timeout of a hook; one that no hook could meet is refused."""
    try:
        seconds = None if timeout is None else exact_number(timeout)
    except TypeError:
        seconds = 0.0
    if isinstance(timeout, bool) or (seconds is not None and seconds <= 0):
        raise InvalidValueError(
            f"the timeout of a HookMatcher is in seconds, more than 0, or None for no limit; not"
            f" {timeout!r}"
        )
    return seconds


def _changed(event: HookEvent, decision: HookDecision) -> HookEvent:
    match event:
        case PreToolUseEvent() if decision.modified_input is not None:
            return replace(event, tool_input=dict(decision.modified_input))
        case PostToolUseEvent() if decision.modified_result is not None:
            return replace(event, tool_result=deepcopy(decision.modified_result))
        case UserPromptSubmitEvent() if decision.modified_prompt is not None:
            return replace(event, prompt=decision.modified_prompt)
        case _:
            return event


def _by_name(hooks: Hooks) -> Mapping[str, Sequence[HookMatcher]]:
    """Return *hooks* by our names, each with its matcher."""
    found: dict[str, Sequence[HookMatcher]] = {}
    for given, handlers in hooks.items():
        name = _OTHER_NAMES.get(given, given)
        if name not in _NAMES:
            hint = did_you_mean(str(given), [*_NAMES, *_OTHER_NAMES], then="; ")
            raise InvalidValueError(
                f"no decision hook is called {given!r}; {hint}there are {', '.join(_NAMES)}"
            )
        if name in found:
            raise InvalidValueError(f"hooks has both {name!r} and {_NAMES[name]!r}: give one list")
        if not isinstance(handlers, Sequence) or not all(
            callable(one) or isinstance(one, HookMatcher) for one in handlers
        ):
            raise InvalidValueError(f"each hook name has a list of functions, not {handlers!r}")
        found[name] = tuple([
            one if isinstance(one, HookMatcher) else HookMatcher(None, (one,)) for one in handlers
        ])
        if name not in _OF_TOOLS and any(one.matcher for one in found[name]):
            raise InvalidValueError(f"a matcher selects tools, and {name!r} is about none")
    return found


def _check_takes_event(handler: HookHandler) -> None:
    """Raise InvalidValueError if *handler* cannot be called with one argument."""
    try:
        takes = signature(handler)
    except (TypeError, ValueError):  # a callable in C without a signature
        return
    try:
        takes.bind(None)
    except TypeError:
        raise InvalidValueError(
            f"a decision hook takes one argument, the event, and returns a HookDecision or None:"
            f" {handler!r} takes {takes}"
        ) from None


def _names(names: Iterable[Any]) -> frozenset[str]:
    listed: list[Any] = list(names) if isinstance(names, Iterable) else [None]
    found = frozenset[Any](getattr(name, "name", name) for name in listed)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        raise InvalidValueError(f"tools are listed by name, or as functions, not {names!r}")
    return found
