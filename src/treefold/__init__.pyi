"""What ``treefold`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.agents.decorator import agent as agent
from treefold.agents.ensemble import Ensemble as Ensemble
from treefold.agents.function import AgentFunction as AgentFunction
from treefold.agents.think_more import (
    ThinkMore as ThinkMore,
    ThinkMoreDecorator as ThinkMoreDecorator,
)
from treefold.chat.blocks import (
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
from treefold.chat.client import Client as Client, query as query
from treefold.chat.config import get_base_url as get_base_url, get_model as get_model
from treefold.chat.context import (
    compact_messages as compact_messages,
    estimate_tokens as estimate_tokens,
    truncate_messages as truncate_messages,
)
from treefold.chat.options import AgentOptions as AgentOptions
from treefold.core.agent_errors import (
    AgentException as AgentException,
    BlockedError as BlockedError,
    BudgetExceeded as BudgetExceeded,
    DeniedError as DeniedError,
    EnsembleError as EnsembleError,
    NoAnswerError as NoAnswerError,
    StepLimitError as StepLimitError,
)
from treefold.core.budget import Budget as Budget
from treefold.core.code import CodeFunction as CodeFunction
from treefold.core.decisions import (
    HOOK_POST_TOOL_USE as HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE as HOOK_PRE_TOOL_USE,
    HOOK_USER_PROMPT_SUBMIT as HOOK_USER_PROMPT_SUBMIT,
    HookDecision as HookDecision,
    PostToolUseEvent as PostToolUseEvent,
    PreToolUseEvent as PreToolUseEvent,
    UserPromptSubmitEvent as UserPromptSubmitEvent,
)
from treefold.core.errors import (
    CallGraphError as CallGraphError,
    CancellationException as CancellationException,
    CompletionCheckReturnError as CompletionCheckReturnError,
    FencedError as FencedError,
    InDoubtError as InDoubtError,
    ModelProviderException as ModelProviderException,
    ModelRefusedError as ModelRefusedError,
    NoParentSessionError as NoParentSessionError,
    RecordedError as RecordedError,
    SafeExecutionError as SafeExecutionError,
    SessionConflictError as SessionConflictError,
    StoreBusyError as StoreBusyError,
    StoreError as StoreError,
    StoreOwnedError as StoreOwnedError,
    TooLargeError as TooLargeError,
    TreefoldError as TreefoldError,
    TurnTimeoutError as TurnTimeoutError,
    UnknownSessionError as UnknownSessionError,
    UnregisteredAgentError as UnregisteredAgentError,
    UnregisteredHookError as UnregisteredHookError,
    UnregisteredToolError as UnregisteredToolError,
    WrongRunMethodError as WrongRunMethodError,
)
from treefold.core.forking import Edit as Edit
from treefold.core.frames import Frame as Frame
from treefold.core.from_file import FromFile as FromFile
from treefold.core.function import (
    Function as Function,
    Node as Node,
    RunContext as RunContext,
    SessionScope as SessionScope,
)
from treefold.core.parameter import FunctionArg as FunctionArg
from treefold.core.provider import Provider as Provider
from treefold.core.question import Question as Question, QuestionKind as QuestionKind
from treefold.core.sessions import SessionInfo as SessionInfo
from treefold.core.states import NodeState as NodeState
from treefold.core.transcript import (
    ModelText as ModelText,
    ThinkingPart as ThinkingPart,
    ThinkingSignature as ThinkingSignature,
    ToolResult as ToolResult,
    ToolUse as ToolUse,
    TranscriptPart as TranscriptPart,
    UserText as UserText,
)
from treefold.core.usage import TokenUsage as TokenUsage
from treefold.core.views import NodeView as NodeView
from treefold.runtime.calls.node import CodeNode as CodeNode
from treefold.runtime.conversations.agent_node import AgentNode as AgentNode
from treefold.runtime.limits.limits import Limits as Limits
from treefold.runtime.observe.observer import Observer as Observer, attach as attach
from treefold.runtime.runtime import Runtime as Runtime
from treefold.runtime.trees.bags import SessionBag as SessionBag
from treefold.stores.memory_store import MemoryStore as MemoryStore
from treefold.stores.sessions import SessionStore as SessionStore
from treefold.stores.sqlite_store import SqliteStore as SqliteStore
from treefold.toolbox.raising import RaiseException as RaiseException
from treefold.turns.agent import Agent as Agent, AgentRegistry as AgentRegistry
from treefold.turns.decorator import tool as tool
from treefold.turns.dict_tool import Tool as Tool
from treefold.turns.hooks import (
    AgentHook as AgentHook,
    ContextPoolHook as ContextPoolHook,
    ContextQueueHook as ContextQueueHook,
    Hook as Hook,
    HookRegistry as HookRegistry,
    ToolHook as ToolHook,
    TurnHook as TurnHook,
    hook as hook,
)
from treefold.turns.memory import (
    ContextItem as ContextItem,
    ContextPool as ContextPool,
    ContextQueue as ContextQueue,
)
from treefold.turns.registry import registries as registries
from treefold.turns.tool_options import ToolType as ToolType
from treefold.turns.tools import (
    ToolMetadata as ToolMetadata,
    ToolRegistry as ToolRegistry,
)
from treefold.turns.turn import StopReason as StopReason, Turn as Turn
from treefold.version import __version__ as __version__
