"""Agents are functions, and every run is a tree.

The names are loaded when they are first used, so that ``import ramify`` is quick and a program
pays only for what it takes. ``__init__.pyi`` tells type checkers the same.
"""

from importlib import import_module

_HOMES = {
    "ramify.core.code": ["CodeFunction"],
    "ramify.core.errors": [
        "CancellationException",
        "CompletionCheckReturnError",
        "ModelProviderException",
        "NoParentSessionError",
        "RamifyError",
        "SafeExecutionError",
        "TurnTimeoutError",
        "UnregisteredAgentError",
        "UnregisteredHookError",
        "UnregisteredToolError",
        "WrongRunMethodError",
    ],
    "ramify.core.function": ["Function", "Node", "RunContext", "SessionScope"],
    "ramify.core.model": ["Provider"],
    "ramify.core.parameter": ["FunctionArg"],
    "ramify.core.states": ["NodeState"],
    "ramify.core.transcript": [
        "ModelText",
        "ThinkingPart",
        "ToolResult",
        "ToolUse",
        "TranscriptPart",
        "UserText",
    ],
    "ramify.core.usage": ["TokenUsage"],
    "ramify.core.views": ["NodeView"],
    "ramify.runtime.bags": ["SessionBag"],
    "ramify.runtime.node": ["CodeNode"],
    "ramify.runtime.runtime": ["Runtime"],
    "ramify.turns.agent": ["Agent", "AgentRegistry"],
    "ramify.turns.memory": ["ContextItem", "ContextPool", "ContextQueue"],
    "ramify.turns.definition": ["ToolType"],
    "ramify.turns.hooks": [
        "AgentHook",
        "ContextPoolHook",
        "ContextQueueHook",
        "Hook",
        "HookRegistry",
        "ToolHook",
        "TurnHook",
        "hook",
    ],
    "ramify.turns.registry": ["registries"],
    "ramify.turns.tool": ["Tool", "ToolMetadata", "ToolRegistry", "tool"],
    "ramify.turns.turn": ["StopReason", "Turn"],
    "ramify.version": ["__version__"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ramify' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
