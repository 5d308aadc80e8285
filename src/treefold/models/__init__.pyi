"""What ``treefold.models`` exports, for type checkers; ``__init__.py`` loads it on first use."""

from treefold.core.exchange import Exchange as Exchange, Finish as Finish
from treefold.core.model import (
    Caching as Caching,
    Model as Model,
    ModelSettings as ModelSettings,
    Session as Session,
)
from treefold.core.model_events import (
    AttemptFailed as AttemptFailed,
    ModelEvent as ModelEvent,
    Noticed as Noticed,
    PartCompleted as PartCompleted,
    ResponseEnded as ResponseEnded,
    ResponseStarted as ResponseStarted,
    TextDelta as TextDelta,
    TextWasThinking as TextWasThinking,
    ThinkingDelta as ThinkingDelta,
    ToolUseDelta as ToolUseDelta,
)
from treefold.models.anthropic.model import AnthropicModel as AnthropicModel
from treefold.models.caching import PastRun as PastRun, caching_policy as caching_policy
from treefold.models.failover import Failover as Failover
from treefold.models.gemini.model import GeminiModel as GeminiModel
from treefold.models.local.model import LocalModel as LocalModel
from treefold.models.local.weights import fetch_weights as fetch_weights
from treefold.models.naming import find_model as find_model
from treefold.models.openai.model import OpenAIModel as OpenAIModel
from treefold.models.prices import price as price
from treefold.models.profiles import (
    Profile as Profile,
    Thinking as Thinking,
    profile_of as profile_of,
)
from treefold.models.retry import Retry as Retry, Timers as Timers
from treefold.models.servers import FoundServer as FoundServer, find_servers as find_servers
