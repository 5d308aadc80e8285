"""Who may call what: lists of names, and hooks that decide about each call a model asks for.

They are given to a runtime, or to a client inside it, and reach every call below.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Final

from treefold.core.errors import InvalidValueError

HOOK_PRE_TOOL_USE: Final = "pre_tool_use"
HOOK_POST_TOOL_USE: Final = "post_tool_use"
HOOK_USER_PROMPT_SUBMIT: Final = "user_prompt_submit"

_NAMES: Final = (HOOK_PRE_TOOL_USE, HOOK_POST_TOOL_USE, HOOK_USER_PROMPT_SUBMIT)


@dataclass(frozen=True, slots=True)
class HookDecision:
    """What a decision hook says.

    None leaves it to the next hook; a decision ends the asking, and an empty one allows it.

    Attributes:
        continue_: False forbids it, for *reason*.
        modified_input: the arguments to use instead; a client's history shows these.
        modified_prompt: the prompt to use instead.
        reason: why.
        ask: what to ask a person, who then decides.

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

    def __post_init__(self) -> None:
        if not isinstance(self.modified_input, Mapping | None):
            raise InvalidValueError(
                f"arguments go by name, {{'name': value}}: not {self.modified_input!r}"
            )
        for said in self.modified_prompt, self.reason, self.ask:
            if not isinstance(said, str | None):
                raise InvalidValueError(
                    f"a decision's prompt, reason and question are text: {said!r}"
                )

    def after(self, earlier: "HookDecision") -> "HookDecision":
        """Return what the two come to, *earlier* being that of somebody with more to say."""
        asks = [one.ask for one in (earlier, self) if one.ask is not None]
        return HookDecision(
            self.continue_,  # it would not have been asked about what was forbidden before
            earlier.modified_input if self.modified_input is None else self.modified_input,
            earlier.modified_prompt if self.modified_prompt is None else self.modified_prompt,
            earlier.reason if self.reason is None else self.reason,
            "\n".join(asks) if asks else None,
        )


@dataclass(frozen=True, slots=True)
class PreToolUseEvent:
    """A model asks for a call, which has not been made yet.

    ``tool_input`` is what the model wrote: whether it fits the function is checked when the call is
    made.

    Example:
        >>> from treefold import PreToolUseEvent
        >>> PreToolUseEvent("bash", {"command": "ls"}, "call_1").tool_input["command"]
        'ls'
    """

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


@dataclass(frozen=True, slots=True)
class PostToolUseEvent:
    """A call that a model asked for has ended, or was denied.

    ``tool_result`` is its value or, if there is none, what the model is told instead, and
    ``is_error`` is True then. What the hook returns is not looked at.

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


@dataclass(frozen=True, slots=True)
class UserPromptSubmitEvent:
    """A prompt is about to be sent to a model.

    Example:
        >>> from treefold import UserPromptSubmitEvent
        >>> UserPromptSubmitEvent("Delete it all").prompt
        'Delete it all'
    """

    prompt: str
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


HookEvent = PreToolUseEvent | PostToolUseEvent | UserPromptSubmitEvent
HookHandler = Callable[[Any], Awaitable[HookDecision | None]]
Hooks = Mapping[str, Sequence[HookHandler]]


@dataclass(frozen=True, slots=True)
class Rules:
    """What one runtime or client allows the models below it."""

    allowed: frozenset[str] | None = None  # None: everything that is not disallowed
    disallowed: frozenset[str] = frozenset()
    hooks: Hooks = field(default_factory=dict[str, Sequence[HookHandler]])

    @classmethod
    def of(
        cls, allowed: Iterable[Any] | None, disallowed: Iterable[Any], hooks: Hooks | None
    ) -> "Rules":
        """Return the rules that these make, if they are rules.

        Raises:
            InvalidValueError: they are not.
        """
        if not isinstance(hooks, Mapping | None):
            raise InvalidValueError(
                f"hooks go by name, {{HOOK_PRE_TOOL_USE: [...]}}: not {hooks!r}"
            )
        if unknown := [name for name in hooks or {} if name not in _NAMES]:
            raise InvalidValueError(f"no decision hook is called {unknown}; there are {_NAMES}")
        for handlers in (hooks or {}).values():
            if not isinstance(handlers, Sequence) or not all(map(callable, handlers)):
                raise InvalidValueError(f"each hook name has a list of functions, not {handlers!r}")
        return cls(
            None if allowed is None else _names(allowed), _names(disallowed), dict(hooks or {})
        )

    def forbids(self, name: str) -> str | None:
        """Return why a function may not be called, or None if it may."""
        if name in self.disallowed:
            return "it is one of disallowed_tools"
        if self.allowed is not None and name not in self.allowed:
            return f"it is none of allowed_tools ({', '.join(sorted(self.allowed)) or 'none'})"
        return None

    async def decide(self, hook: str, event: HookEvent) -> HookDecision:
        """Ask the hooks of that name in order; the first that returns a decision wins.

        An exception that a hook raises is passed on.
        """
        for handler in self.hooks.get(hook, ()):
            decision = handler(event)
            if not isawaitable(decision):
                raise InvalidValueError(f"a decision hook is an async function: {handler!r} is not")
            decision = await decision
            if decision is None:
                continue
            if not isinstance(decision, HookDecision):
                raise InvalidValueError(
                    f"a decision hook returns a HookDecision or None, not {decision!r}"
                )
            return decision
        return HookDecision()


class RuleChain(tuple[Rules, ...]):
    """The rules over one call: the runtime's, then those of each client that it is below.

    Each can forbid more than those before it, and nothing less.
    """

    __slots__ = ()

    def forbids(self, name: str) -> str | None:
        """Return why a function may not be called, or None if it may."""
        return next((why for rules in self if (why := rules.forbids(name)) is not None), None)

    def asks(self, hook: str) -> bool:
        """Whether anybody wants to decide here."""
        return any(rules.hooks.get(hook) for rules in self)

    async def decide(self, hook: str, event: HookEvent) -> HookDecision:
        """Ask level by level; what one changes is what the next is asked about."""
        decided = HookDecision()
        for rules in self:
            decision = await rules.decide(hook, event)
            decided = decision.after(decided)
            if not decision.continue_:
                break
            event = _changed(event, decision)
        return decided


def _changed(event: HookEvent, decision: HookDecision) -> HookEvent:
    match event:
        case PreToolUseEvent() if decision.modified_input is not None:
            return replace(event, tool_input=deepcopy(dict(decision.modified_input)))
        case UserPromptSubmitEvent() if decision.modified_prompt is not None:
            return replace(event, prompt=decision.modified_prompt)
        case _:
            return event


def _names(names: Iterable[Any]) -> frozenset[str]:
    listed: list[Any] = list(names) if isinstance(names, Iterable) else [None]
    found = frozenset[Any](getattr(name, "name", name) for name in listed)
    if isinstance(names, str) or not all(isinstance(name, str) for name in found):
        raise InvalidValueError(f"tools are listed by name, or as functions, not {names!r}")
    return found
