"""What ``ramify`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from ramify.agents.decorator import agent as agent
from ramify.agents.ensemble import Ensemble as Ensemble
from ramify.agents.function import AgentFunction as AgentFunction
from ramify.agents.think_more import ThinkMore as ThinkMore
from ramify.chat.blocks import (
    AssistantMessage as AssistantMessage,
    SystemMessage as SystemMessage,
    TextBlock as TextBlock,
    ThinkingBlock as ThinkingBlock,
    ToolResultBlock as ToolResultBlock,
    ToolUseBlock as ToolUseBlock,
    ToolUseDelta as ToolUseDelta,
    ToolUseError as ToolUseError,
    UserMessage as UserMessage,
)
from ramify.chat.client import Client as Client, query as query
from ramify.chat.config import get_base_url as get_base_url, get_model as get_model
from ramify.chat.context import (
    compact_messages as compact_messages,
    estimate_tokens as estimate_tokens,
    truncate_messages as truncate_messages,
)
from ramify.chat.options import AgentOptions as AgentOptions
from ramify.core.agent_errors import (
    AgentException as AgentException,
    BlockedError as BlockedError,
    BudgetExceeded as BudgetExceeded,
    DeniedError as DeniedError,
    EnsembleError as EnsembleError,
    NoAnswerError as NoAnswerError,
    StepLimitError as StepLimitError,
)
from ramify.core.budget import Budget as Budget
from ramify.core.code import CodeFunction as CodeFunction
from ramify.core.decisions import (
    HOOK_POST_TOOL_USE as HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE as HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT as HOOK_USER_PROMPT_SUBMIT,
    HookDecision as HookDecision,
    PostToolUseEvent as PostToolUseEvent,
    PreToolUseEvent as PreToolUseEvent,
    UserPromptSubmitEvent as UserPromptSubmitEvent,
)
from ramify.core.errors import (
    CallGraphError as CallGraphError,
    CancellationException as CancellationException,
    CompletionCheckReturnError as CompletionCheckReturnError,
    FencedError as FencedError,
    InDoubtError as InDoubtError,
    ModelProviderException as ModelProviderException,
    ModelRefusedError as ModelRefusedError,
    NoParentSessionError as NoParentSessionError,
    RamifyError as RamifyError,
    RecordedError as RecordedError,
    SafeExecutionError as SafeExecutionError,
    SessionConflictError as SessionConflictError,
    StoreError as StoreError,
    StoreOwnedError as StoreOwnedError,
    TurnTimeoutError as TurnTimeoutError,
    UnknownSessionError as UnknownSessionError,
    UnregisteredAgentError as UnregisteredAgentError,
    UnregisteredHookError as UnregisteredHookError,
    UnregisteredToolError as UnregisteredToolError,
    WrongRunMethodError as WrongRunMethodError,
)
from ramify.core.forking import Edit as Edit
from ramify.core.frames import Frame as Frame
from ramify.core.from_file import FromFile as FromFile
from ramify.core.function import (
    Function as Function,
    Node as Node,
    RunContext as RunContext,
    SessionScope as SessionScope,
)
from ramify.core.parameter import FunctionArg as FunctionArg
from ramify.core.provider import Provider as Provider
from ramify.core.question import Question as Question, QuestionKind as QuestionKind
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
from ramify.runtime.agent_node import AgentNode as AgentNode
from ramify.runtime.bags import SessionBag as SessionBag
from ramify.runtime.limits import Limits as Limits
from ramify.runtime.node import CodeNode as CodeNode
from ramify.runtime.observer import Observer as Observer, attach as attach
from ramify.runtime.runtime import Runtime as Runtime
from ramify.stores.memory_store import MemoryStore as MemoryStore
from ramify.stores.sessions import SessionInfo as SessionInfo, SessionStore as SessionStore
from ramify.stores.sqlite_store import SqliteStore as SqliteStore
from ramify.turns.agent import Agent as Agent, AgentRegistry as AgentRegistry
from ramify.turns.decorator import tool as tool
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
)
from ramify.turns.turn import StopReason as StopReason, Turn as Turn
from ramify.version import __version__ as __version__
