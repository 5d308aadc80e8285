"""Chat: a person talks to a model that calls functions.

``client`` is what programs use, with ``options``, ``blocks`` and ``config``. Each prompt is a
``turn``: a call of the one loop, whose blocks go through an ``block_stream`` to whoever reads them.
``conversation`` keeps the history for people and the session for the model in step, with
``mending`` for a history that was changed, and ``saving`` writes it down. ``context`` measures and
cuts histories, and ``helpers`` are for programs that talk to a server themselves; both can be used
without a client.
"""

from treefold.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "treefold.chat.blocks": [
            "AssistantMessage",
            "SystemMessage",
            "TextBlock",
            "ThinkingBlock",
            "ToolResultBlock",
            "ToolUseBlock",
            "ToolUseDelta",
            "ToolUseError",
            "UserMessage",
        ],
        "treefold.chat.client": ["Client", "query"],
        "treefold.chat.config": ["get_base_url", "get_model"],
        "treefold.chat.context": ["compact_messages", "estimate_tokens", "truncate_messages"],
        "treefold.chat.helpers": [
            "ToolCallAggregator",
            "create_client",
            "format_messages",
            "format_tools",
        ],
        "treefold.chat.options": ["AgentOptions"],
        "treefold.core.decisions": [
            "HOOK_POST_TOOL_USE",
            "HOOK_PRE_TOOL_USE",
            "HOOK_USER_PROMPT_SUBMIT",
            "HookDecision",
            "HookEvent",
            "HookHandler",
            "PostToolUseEvent",
            "PreToolUseEvent",
            "UserPromptSubmitEvent",
        ],
        "treefold.turns.decorator": ["tool"],
        "treefold.turns.dict_tool": ["Tool"],
    },
)
