"""Talk to language models: the only place that opens a connection to one.

Example:
    >>> from treefold.models import find_model
    >>> find_model("openai:qwen3@ollama")
    <OpenAIModel openai:qwen3@http://localhost:11434/v1>
"""

from treefold.exports import exports

__getattr__, __dir__, __all__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "treefold.core.exchange": ["Exchange", "Finish"],
        "treefold.core.model": ["Caching", "Model", "ModelSettings", "Session"],
        "treefold.core.model_events": [
            "AttemptFailed",
            "ModelEvent",
            "Noticed",
            "PartCompleted",
            "ResponseEnded",
            "ResponseStarted",
            "TextDelta",
            "TextWasThinking",
            "ThinkingDelta",
            "ToolUseDelta",
        ],
        "treefold.models.anthropic.model": ["AnthropicModel"],
        "treefold.models.caching": ["PastRun", "caching_policy"],
        "treefold.models.gemini.model": ["GeminiModel"],
        "treefold.models.local.model": ["LocalModel"],
        "treefold.models.local.weights": ["fetch_weights"],
        "treefold.models.naming": ["find_model"],
        "treefold.models.openai.model": ["OpenAIModel"],
        "treefold.models.prices": ["price"],
        "treefold.models.profiles": ["Profile", "Thinking", "profile_of"],
        "treefold.models.retry": ["Retry", "Timers"],
        "treefold.models.servers": ["FoundServer", "find_servers"],
    },
)
