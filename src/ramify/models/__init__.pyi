"""What ``ramify.models`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from ramify.core.exchange import Exchange as Exchange, Finish as Finish
from ramify.core.model import (
    Caching as Caching,
    Model as Model,
    ModelSettings as ModelSettings,
    Session as Session,
)
from ramify.core.model_events import (
    AttemptFailed as AttemptFailed,
    ModelEvent as ModelEvent,
    Noticed as Noticed,
    PartCompleted as PartCompleted,
    ResponseEnded as ResponseEnded,
    TextDelta as TextDelta,
    TextWasThinking as TextWasThinking,
    ThinkingDelta as ThinkingDelta,
    ToolUseDelta as ToolUseDelta,
)
from ramify.models.anthropic.model import AnthropicModel as AnthropicModel
from ramify.models.caching import PastRun as PastRun, caching_policy as caching_policy
from ramify.models.gemini.model import GeminiModel as GeminiModel
from ramify.models.local.model import LocalModel as LocalModel
from ramify.models.local.weights import fetch_weights as fetch_weights
from ramify.models.naming import find_model as find_model
from ramify.models.openai.model import OpenAIModel as OpenAIModel
from ramify.models.prices import price as price
from ramify.models.profiles import (
    Profile as Profile,
    Thinking as Thinking,
    profile_of as profile_of,
)
from ramify.models.retry import Retry as Retry, Timers as Timers
from ramify.models.servers import FoundServer as FoundServer, find_servers as find_servers
