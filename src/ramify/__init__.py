"""Agents are functions, and every run is a tree.

The names are loaded when they are first used; ``__init__.pyi`` tells type checkers the same.
"""

from ramify.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "ramify.core.code": ["CodeFunction"],
        "ramify.core.errors": [
            "CancellationException",
            "CompletionCheckReturnError",
            "ModelProviderException",
            "ModelRefusedError",
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
    },
)
