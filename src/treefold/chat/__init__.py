"""Chat: a person talks to a model that calls functions.

Conversations:
    query: ask one question and stream the answer.
    Client: a conversation of many turns, which can be saved, forked and interrupted.
    AgentOptions: the model, system prompt, tools and limits of a chat; it is no agent itself.

Blocks, the pieces of an answer that are streamed:
    TextBlock, ThinkingBlock: a piece of text, or of thinking.
    ToolUseBlock, ToolUseDelta, ToolUseError: a call that the model asks for, a fragment of one
        that is still being written, and one that could not be made or that failed.
    ToolResultBlock: the result of a call.

Messages of a history:
    SystemMessage, UserMessage, AssistantMessage: what each of them said.
    ResultMessage: what an answer took: cost, usage, time; the last that is streamed, if asked for.

Tools:
    tool, Tool: the decorator and the class, the same as in ``treefold.turns``.

Hooks, which decide about prompts, calls and the end:
    HOOK_USER_PROMPT_SUBMIT, HOOK_PRE_TOOL_USE, HOOK_POST_TOOL_USE, HOOK_STOP, HOOK_SUBAGENT_STOP:
        when a hook is called.
    UserPromptSubmitEvent, PreToolUseEvent, PostToolUseEvent, StopEvent, HookEvent: what it is
        called with.
    HookDecision, HookHandler: what it returns, and its type.
    HookMatcher: hooks that are asked about some tools only.

Context, for any list of messages:
    estimate_tokens: how many tokens a history takes.
    truncate_messages, compact_messages: a shorter history.

Configuration:
    get_base_url, get_model: the server and the model, from arguments and the environment.

Helpers for programs that talk to an OpenAI-compatible server themselves:
    create_client, format_messages, format_tools, ToolCallAggregator.

All but ``HookEvent``, ``HookHandler`` and the helpers can be imported from ``treefold`` as well.
Names are loaded on first use; type checkers read ``__init__.pyi``.

Inside, each prompt is a call: ``function`` drives the model loop of ``agents``, as its policy;
``turn_reader`` listens to the loop and passes blocks to the reader through a ``block_stream``;
``turn_calls`` does the same for calls. ``turn`` is the state that a client and the call share.
``conversation`` keeps the message history in step with the model's session, ``history_repair``
turns an edited history into exchanges, and ``saving`` writes them to a store.
"""

from treefold.exports import exports

__getattr__, __dir__ = exports(__name__)
