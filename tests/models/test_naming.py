"""Models by name, what their families take, and what they cost."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from ramify.core.errors import InvalidValueError, UsageError
from ramify.core.model import Model
from ramify.core.provider import Provider
from ramify.core.usage import TokenUsage
from ramify.models.anthropic.model import AnthropicModel
from ramify.models.gemini.model import GeminiModel
from ramify.models.naming import find_model
from ramify.models.openai.model import OpenAIModel
from ramify.models.prices import price
from ramify.models.profiles import Thinking, profile_of
from ramify.models.wire_model import required_package
from ramify.testing import ScriptedModel


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("anthropic:claude-opus-4-1", AnthropicModel, "anthropic:claude-opus-4-1"),
        ("gemini:gemini-2.5-pro", GeminiModel, "gemini:gemini-2.5-pro"),
        ("openai:gpt-5", OpenAIModel, "openai:gpt-5"),
        (
            "openai:qwen3@http://localhost:1234/v1",
            OpenAIModel,
            "openai:qwen3@http://localhost:1234/v1",
        ),
        (
            "openai:deepseek-r1:8b@ollama",
            OpenAIModel,
            "openai:deepseek-r1:8b@http://localhost:11434/v1",
        ),
        ("Ollama:llama3", OpenAIModel, "openai:llama3@http://localhost:11434/v1"),
        ("Anthropic:claude-opus-4-1", AnthropicModel, "anthropic:claude-opus-4-1"),
        (Provider.Anthropic, AnthropicModel, "anthropic:claude-opus-4-1"),
        (Provider.Gemini, GeminiModel, "gemini:gemini-2.5-pro"),
    ],
)
def test_a_name_stands_for_a_model(name: str, kind: type, shown: str):
    model = find_model(name)
    assert type(model) is kind
    assert model.name == shown


def test_a_model_stands_for_itself():
    model = ScriptedModel()
    assert find_model(model) is model


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("claude", "no provider is called 'claude'"),
        ("", "no provider is called ''"),
        ("anthropic:claude@ollama", "have no address"),
        ("openai:x@nowhere", "base_url 'nowhere' is not an address"),
    ],
)
def test_other_names_are_refused_in_words(name: str, message: str):
    with pytest.raises(InvalidValueError, match=message):
        find_model(name)


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-3-opus-20240229", Thinking.UNASKED),
        ("claude-3-5-haiku-20241022", Thinking.UNASKED),
        ("claude-opus-4-20250514", Thinking.BUDGET),
        ("claude-opus-4-1", Thinking.BUDGET),
        ("claude-sonnet-4-5", Thinking.BUDGET),
        ("claude-opus-4-6", Thinking.ADAPTIVE),
        ("claude-opus-4-8", Thinking.ADAPTIVE),
        ("claude-sonnet-5", Thinking.ADAPTIVE),
        ("claude-haiku-5-5", Thinking.ADAPTIVE),
        ("claude-mythos-preview", Thinking.ADAPTIVE),
    ],
)
def test_families_of_claude_think_in_their_own_way(model: str, thinking: Thinking):
    profile = profile_of(Provider.Anthropic, model)
    assert profile.thinking is thinking
    assert bool(profile.headers) == (thinking is Thinking.BUDGET)
    assert profile.context_window is not None


def test_families_know_their_context_windows():
    assert profile_of(Provider.Anthropic, "claude-opus-4-1").context_window == 200_000
    assert profile_of(Provider.Gemini, "gemini-2.5-pro").context_window == 1_048_576
    assert profile_of(Provider.OpenAI, "gpt-4o-mini").context_window == 128_000
    assert profile_of(Provider.OpenAI, "some-local-model").context_window is None


@pytest.mark.parametrize(
    ("model", "thinking", "budget"),
    [
        ("gemini-2.0-flash", Thinking.UNASKED, None),
        ("gemini-2.5-pro", Thinking.BUDGET, 32_768),
        ("gemini-2.5-flash", Thinking.BUDGET, 24_576),
        ("gemini-2.5-flash-lite", Thinking.BUDGET, None),
        ("gemini-3-pro", Thinking.ADAPTIVE, None),
    ],
)
def test_families_of_gemini_think_in_their_own_way(
    model: str, thinking: Thinking, budget: int | None
):
    profile = profile_of(Provider.Gemini, model)
    assert (profile.thinking, profile.thinking_budget) == (thinking, budget)


def test_families_behind_openais_protocol_have_their_ways():
    assert not profile_of(Provider.OpenAI, "deepseek-reasoner").replays_thinking
    assert profile_of(Provider.OpenAI, "QwQ-32B").thinks_first
    magistral = profile_of(Provider.OpenAI, "magistral-small")
    assert magistral.think_tags == ("[THINK]", "[/THINK]")


def test_reasoning_models_of_openai_refuse_sampling():
    assert not profile_of(Provider.OpenAI, "gpt-5-mini").sampling
    assert not profile_of(Provider.OpenAI, "o3").sampling
    assert profile_of(Provider.OpenAI, "gpt-4o").sampling


WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def dollars(model: Model, **tokens: int) -> Decimal | None:
    return price(TokenUsage(**tokens), model, WHEN)


def test_each_kind_of_token_has_its_price():
    opus = AnthropicModel("claude-opus-4-1")  # 15 and 75 dollars for a million
    million = 1_000_000
    assert dollars(opus, input=million) == Decimal(15)
    assert dollars(opus, output=million) == dollars(opus, reasoning=million) == Decimal(75)
    assert dollars(opus, cache_read=million) == Decimal("1.5")
    assert dollars(opus, cache_write=million) == Decimal("18.75")
    assert dollars(opus, cache_write_1h=million) == Decimal(30)
    both = dollars(opus, input=100, output=10)
    assert both == Decimal(15) * 100 / million + Decimal(75) * 10 / million


def test_what_is_not_on_the_list_is_unknown_and_not_guessed():
    assert dollars(AnthropicModel("claude-of-tomorrow"), input=1) is None
    assert dollars(OpenAIModel("gpt-4o", base_url="ollama"), input=1) is None
    assert dollars(OpenAIModel("gpt-4o"), input=1_000_000) is not None


def test_a_missing_package_is_named_with_its_remedy():
    with pytest.raises(UsageError, match=r"pip install 'openai\[aiohttp\]>=3'"):
        required_package("no_such_package_of_openai", "openai[aiohttp]>=3")


def test_usages_add_up():
    one = TokenUsage(input=1, cache_read=2, cache_write=3, cache_write_1h=4, reasoning=5, output=6)
    assert (one + one).total == 2 * one.total == 42
    assert sum([one, one, one], TokenUsage()) == one + one + one
