"""Talk to language models: the only place that opens a connection to one.

Example:
    >>> from ramify.models import find_model
    >>> find_model("openai:qwen3@ollama")
    <OpenAIModel openai:qwen3@http://localhost:11434/v1>
"""

from ramify.core.model import Caching, Model, ModelSettings, Session
from ramify.models.anthropic.model import AnthropicModel
from ramify.models.caching import PastRun, caching_policy
from ramify.models.gemini.model import GeminiModel
from ramify.models.local.model import LocalModel
from ramify.models.local.weights import fetch_weights
from ramify.models.naming import find_model
from ramify.models.openai.model import OpenAIModel
from ramify.models.prices import price
from ramify.models.profiles import Profile, Thinking, profile_of
from ramify.models.retry import Retry, Timers

__all__ = [
    "AnthropicModel",
    "Caching",
    "GeminiModel",
    "LocalModel",
    "Model",
    "ModelSettings",
    "OpenAIModel",
    "PastRun",
    "Profile",
    "Retry",
    "Session",
    "Thinking",
    "Timers",
    "caching_policy",
    "fetch_weights",
    "find_model",
    "price",
    "profile_of",
]
