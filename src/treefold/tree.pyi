"""What ``treefold.tree`` exports, for type checkers; ``tree.py`` loads it on first use."""

from treefold.agents.decorator import agent as agent
from treefold.agents.ensemble import Ensemble as Ensemble
from treefold.agents.function import AgentFunction as AgentFunction
from treefold.agents.think_more import (
    ThinkMore as ThinkMore,
    ThinkMoreDecorator as ThinkMoreDecorator,
)
from treefold.core.budget import Budget as Budget
from treefold.core.code import CodeFunction as CodeFunction
from treefold.core.compaction import Compaction as Compaction
from treefold.core.deps import RunInfo as RunInfo
from treefold.core.edit import Edit as Edit
from treefold.core.frames import Frame as Frame
from treefold.core.from_file import FromFile as FromFile
from treefold.core.function import (
    Function as Function,
    Node as Node,
    RunContext as RunContext,
    SessionScope as SessionScope,
)
from treefold.core.notification import Notification as Notification
from treefold.core.parameter import FunctionArg as FunctionArg
from treefold.core.provider import Provider as Provider
from treefold.core.question import Question as Question, QuestionKind as QuestionKind
from treefold.core.rate import Rate as Rate
from treefold.core.said import (
    Receipt as Receipt,
    SaidMessage as SaidMessage,
)
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
from treefold.runtime.durable.worker_settings import (
    WorkerPhase as WorkerPhase,
    WorkerSettings as WorkerSettings,
    WorkerStatus as WorkerStatus,
)
from treefold.runtime.limits.limits import Limits as Limits
from treefold.runtime.observe.observer import Observer as Observer, attach as attach
from treefold.runtime.runtime import Runtime as Runtime
from treefold.runtime.trees.bags import SessionBag as SessionBag
from treefold.views.showing import show as show
