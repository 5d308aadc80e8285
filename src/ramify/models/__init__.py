"""Talk to language models: the only place that opens a connection to one.

Example:
    >>> from ramify.models import find_model
    >>> find_model("openai:qwen3@ollama")
    <OpenAIModel openai:qwen3@http://localhost:11434/v1>
"""

from ramify.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "ramify.core.exchange": ["Exchange", "Finish"],
        "ramify.core.model": ["Caching", "Model", "ModelSettings", "Session"],
        "ramify.core.model_events": [
            "AttemptFailed",
            "ModelEvent",
            "Noticed",
            "PartCompleted",
            "ResponseEnded",
            "TextDelta",
            "TextWasThinking",
            "ThinkingDelta",
            "ToolUseDelta",
        ],
        "ramify.models.anthropic.model": ["AnthropicModel"],
        "ramify.models.caching": ["PastRun", "caching_policy"],
        "ramify.models.gemini.model": ["GeminiModel"],
        "ramify.models.local.model": ["LocalModel"],
        "ramify.models.local.weights": ["fetch_weights"],
        "ramify.models.naming": ["find_model"],
        "ramify.models.openai.model": ["OpenAIModel"],
        "ramify.models.prices": ["price"],
        "ramify.models.profiles": ["Profile", "Thinking", "profile_of"],
        "ramify.models.retry": ["Retry", "Timers"],
        "ramify.models.servers": ["FoundServer", "find_servers"],
    },
)
