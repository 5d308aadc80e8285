"""Tools, turns that run them, and agents that run a queue of turns.

Tools:
    tool: the decorator that makes a Tool of an ``async def``, an async generator or a handler.
    Tool: a function with a name, a schema, hooks and, if wanted, a lock.
    ToolType: whether a tool is an action or decides that an agent is done.
    ToolMetadata: name and description of a tool, and when it last ran.

Turns and agents:
    Turn: a call to make: a tool, its arguments and a timeout; run it, save it, queue it.
    StopReason: how a turn ended.
    Agent: runs queued turns in order; its tools can queue more.

Context that an agent keeps between turns:
    ContextItem: a value to remember, which a tool returns.
    ContextQueue: the latest items without an id.
    ContextPool: the items with an id.

Hooks:
    hook: the decorator that registers a global hook.
    Hook: a coroutine function and the points at which it is called.
    ToolHook, TurnHook, AgentHook, ContextQueueHook, ContextPoolHook: those points.

Registries:
    ToolRegistry, AgentRegistry, HookRegistry: what is registered, by name.
    registries: a scope in which names are registered, for a test or a tenant.

All of these can be imported from ``treefold`` as well. They are loaded on first use; type checkers
read ``__init__.pyi``.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
