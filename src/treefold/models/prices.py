"""The price of tokens, from the list of ``genai-prices``; never a guess."""

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from treefold.core.model import Model
from treefold.core.provider import Provider
from treefold.core.usage import TokenUsage

_PROVIDER_IDS: Final = {
    Provider.OpenAI: "openai",
    Provider.Anthropic: "anthropic",
    Provider.Gemini: "google",
}


def price(usage: TokenUsage, model: Model, at: datetime | None = None) -> Decimal | None:
    """Return the price of *usage* of *model* in US dollars; None if it is not known.

    *usage* is that of one request: some models charge more for long ones, so add prices, not
    tokens. A model that was created with ``price=`` has its own price. A model with a base_url has
    no known price, whatever its name.

    Example:
        >>> from treefold import TokenUsage
        >>> from treefold.models import AnthropicModel, LocalModel, OpenAIModel, price
        >>> price(TokenUsage(input=1000), AnthropicModel("claude-opus-5-5"))
        Decimal('0.004')
        >>> price(TokenUsage(input=1000), OpenAIModel("qwen3", base_url="ollama")) is None
        True
    """
    own_price = getattr(model, "price", None)
    if callable(own_price):
        own: Any = own_price(usage)
        return None if own is None else Decimal(str(own))
    if model.provider is Provider.Local:
        return Decimal(0)
    if getattr(model, "base_url", None) is not None:
        return None
    try:
        import genai_prices  # noqa: PLC0415 - its list is slow to load
    except ImportError:
        return None
    tokens: Any = genai_prices.Usage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write + usage.cache_write_1h,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write + usage.cache_write_1h,
        cache_write_1h_tokens=usage.cache_write_1h,
        output_tokens=usage.reasoning + usage.output,
    )
    name = model.name.partition(":")[2]
    try:
        found = genai_prices.calc_price(
            tokens, name, provider_id=_PROVIDER_IDS[model.provider], genai_request_timestamp=at
        )
    except (LookupError, ValueError):
        return None
    return found.total_price
