"""What ``ramify`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from ramify.core.code import CodeFunction as CodeFunction
from ramify.core.errors import (
    CancellationException as CancellationException,
    CompletionCheckReturnError as CompletionCheckReturnError,
    ModelProviderException as ModelProviderException,
    ModelRefusedError as ModelRefusedError,
    NoParentSessionError as NoParentSessionError,
    RamifyError as RamifyError,
    SafeExecutionError as SafeExecutionError,
    TurnTimeoutError as TurnTimeoutError,
    UnregisteredAgentError as UnregisteredAgentError,
    UnregisteredHookError as UnregisteredHookError,
    UnregisteredToolError as UnregisteredToolError,
    WrongRunMethodError as WrongRunMethodError,
)
from ramify.core.function import (
    Function as Function,
    Node as Node,
    RunContext as RunContext,
    SessionScope as SessionScope,
)
from ramify.core.model import Provider as Provider
from ramify.core.parameter import FunctionArg as FunctionArg
from ramify.core.states import NodeState as NodeState
from ramify.core.transcript import (
    ModelText as ModelText,
    ThinkingPart as ThinkingPart,
    ToolResult as ToolResult,
    ToolUse as ToolUse,
    TranscriptPart as TranscriptPart,
    UserText as UserText,
)
from ramify.core.usage import TokenUsage as TokenUsage
from ramify.core.views import NodeView as NodeView
from ramify.runtime.bags import SessionBag as SessionBag
from ramify.runtime.node import CodeNode as CodeNode
from ramify.runtime.runtime import Runtime as Runtime
from ramify.turns.agent import Agent as Agent, AgentRegistry as AgentRegistry
from ramify.turns.definition import ToolType as ToolType
from ramify.turns.hooks import (
    AgentHook as AgentHook,
    ContextPoolHook as ContextPoolHook,
    ContextQueueHook as ContextQueueHook,
    Hook as Hook,
    HookRegistry as HookRegistry,
    ToolHook as ToolHook,
    TurnHook as TurnHook,
    hook as hook,
)
from ramify.turns.memory import (
    ContextItem as ContextItem,
    ContextPool as ContextPool,
    ContextQueue as ContextQueue,
)
from ramify.turns.registry import registries as registries
from ramify.turns.tool import (
    Tool as Tool,
    ToolMetadata as ToolMetadata,
    ToolRegistry as ToolRegistry,
    tool as tool,
)
from ramify.turns.turn import StopReason as StopReason, Turn as Turn
from ramify.version import __version__ as __version__
