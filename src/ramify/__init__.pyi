"""What ``ramify`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from ramify.core.code import CodeFunction as CodeFunction
from ramify.core.errors import (
    CancellationException as CancellationException,
)
from ramify.core.errors import (
    CompletionCheckReturnError as CompletionCheckReturnError,
)
from ramify.core.errors import (
    NoParentSessionError as NoParentSessionError,
)
from ramify.core.errors import (
    RamifyError as RamifyError,
)
from ramify.core.errors import (
    SafeExecutionError as SafeExecutionError,
)
from ramify.core.errors import (
    TurnTimeoutError as TurnTimeoutError,
)
from ramify.core.errors import (
    UnregisteredAgentError as UnregisteredAgentError,
)
from ramify.core.errors import (
    UnregisteredHookError as UnregisteredHookError,
)
from ramify.core.errors import (
    UnregisteredToolError as UnregisteredToolError,
)
from ramify.core.errors import (
    WrongRunMethodError as WrongRunMethodError,
)
from ramify.core.function import (
    Function as Function,
)
from ramify.core.function import (
    Node as Node,
)
from ramify.core.function import (
    RunContext as RunContext,
)
from ramify.core.function import (
    SessionScope as SessionScope,
)
from ramify.core.parameter import FunctionArg as FunctionArg
from ramify.core.states import NodeState as NodeState
from ramify.core.views import NodeView as NodeView
from ramify.runtime.bags import SessionBag as SessionBag
from ramify.runtime.node import CodeNode as CodeNode
from ramify.runtime.runtime import Runtime as Runtime
from ramify.turns.agent import Agent as Agent
from ramify.turns.agent import AgentRegistry as AgentRegistry
from ramify.turns.hooks import (
    AgentHook as AgentHook,
)
from ramify.turns.hooks import (
    ContextPoolHook as ContextPoolHook,
)
from ramify.turns.hooks import (
    ContextQueueHook as ContextQueueHook,
)
from ramify.turns.hooks import (
    Hook as Hook,
)
from ramify.turns.hooks import (
    HookRegistry as HookRegistry,
)
from ramify.turns.hooks import (
    ToolHook as ToolHook,
)
from ramify.turns.hooks import (
    TurnHook as TurnHook,
)
from ramify.turns.hooks import (
    hook as hook,
)
from ramify.turns.memory import (
    ContextItem as ContextItem,
)
from ramify.turns.memory import (
    ContextPool as ContextPool,
)
from ramify.turns.memory import (
    ContextQueue as ContextQueue,
)
from ramify.turns.registry import registries as registries
from ramify.turns.tool import (
    Tool as Tool,
)
from ramify.turns.tool import (
    ToolMetadata as ToolMetadata,
)
from ramify.turns.tool import (
    ToolRegistry as ToolRegistry,
)
from ramify.turns.tool import (
    ToolType as ToolType,
)
from ramify.turns.tool import (
    tool as tool,
)
from ramify.turns.turn import StopReason as StopReason
from ramify.turns.turn import Turn as Turn
from ramify.version import __version__ as __version__
