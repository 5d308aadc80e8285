"""What ``treefold.turns`` exports, for type checkers; ``__init__.py`` loads it on first use."""

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
