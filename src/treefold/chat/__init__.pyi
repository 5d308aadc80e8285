from treefold.chat.blocks import (
    AssistantMessage as AssistantMessage,
    ResultMessage as ResultMessage,
    SystemMessage as SystemMessage,
    TextBlock as TextBlock,
    ThinkingBlock as ThinkingBlock,
    ToolResultBlock as ToolResultBlock,
    ToolUseBlock as ToolUseBlock,
    ToolUseDelta as ToolUseDelta,
    ToolUseError as ToolUseError,
    UserMessage as UserMessage,
)
from treefold.chat.client import (
    Client as Client,
    query as query,
)
from treefold.chat.config import (
    get_base_url as get_base_url,
    get_model as get_model,
)
from treefold.chat.context import (
    compact_messages as compact_messages,
    estimate_tokens as estimate_tokens,
    truncate_messages as truncate_messages,
)
from treefold.chat.helpers import (
    ToolCallAggregator as ToolCallAggregator,
    create_client as create_client,
    format_messages as format_messages,
    format_tools as format_tools,
)
from treefold.chat.options import (
    AgentOptions as AgentOptions,
)
from treefold.core.decisions import (
    HOOK_POST_TOOL_USE as HOOK_POST_TOOL_USE,
    HOOK_PRE_TOOL_USE as HOOK_PRE_TOOL_USE,
    HOOK_STOP as HOOK_STOP,
    HOOK_SUBAGENT_STOP as HOOK_SUBAGENT_STOP,
    HOOK_USER_PROMPT_SUBMIT as HOOK_USER_PROMPT_SUBMIT,
    HookDecision as HookDecision,
    HookEvent as HookEvent,
    HookHandler as HookHandler,
    HookMatcher as HookMatcher,
    PostToolUseEvent as PostToolUseEvent,
    PreToolUseEvent as PreToolUseEvent,
    StopEvent as StopEvent,
    UserPromptSubmitEvent as UserPromptSubmitEvent,
)
from treefold.turns import Tool as Tool, tool as tool
