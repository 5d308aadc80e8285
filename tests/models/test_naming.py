"""Models by name, what their families take, and what they cost."""

import inspect
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_args

import anthropic.types
import openai.types
import openai.types.shared_params.chat_model as openai_names
import pytest
from anthropic.resources.messages.messages import DEPRECATED_MODELS
from genai_prices.data_snapshot import get_snapshot
from google.genai._gaos.types.interactions import model as google_names

from treefold.core.errors import InvalidValueError, UsageError
from treefold.core.model import Model, ModelSettings
from treefold.core.provider import Provider
from treefold.core.usage import TokenUsage
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.gemini.model import GeminiModel
from treefold.models.naming import find_model
from treefold.models.openai.model import OpenAIModel
from treefold.models.prices import price
from treefold.models.profiles import Thinking, profile_of
from treefold.models.wire_model import required_package
from treefold.testing import ScriptedModel


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
        (Provider.Anthropic, AnthropicModel, "anthropic:claude-opus-5-5"),
        (Provider.Gemini, GeminiModel, "gemini:gemini-4-argon"),
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
        ("claude", "no provider is called 'claude'; did you mean 'anthropic'. write 'anthropic:M"),
        ("claude-opus-5-5", "'claude-opus-5-5'; did you mean 'anthropic:claude-opus-5-5'. write"),
        ("GPT-6.1-sol", "'GPT-6.1-sol'; did you mean 'openai:GPT-6.1-sol'. write"),
        ("gemini-2.5-pro", "'gemini-2.5-pro'; did you mean 'gemini:gemini-2.5-pro'. write"),
        ("opnai:gpt-5", "no provider is called 'opnai'; did you mean 'openai:gpt-5'. write"),
        ("olama:qwen3:4b", "no provider is called 'olama'; did you mean 'ollama:qwen3:4b'. write"),
        ("antropic", "no provider is called 'antropic'; did you mean 'anthropic'. write"),
        ("qwen3", "no provider is called 'qwen3'; write 'anthropic:MODEL'"),
        ("", "no provider is called ''; write 'anthropic:MODEL'"),
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


def listed(names: Any) -> list[str]:
    """Return the names in a union of literals."""
    if isinstance(names, str):
        return [names]
    return [name for part in get_args(names) for name in listed(part)]


OPENAI_NAMES = listed(openai.types.ChatModel)
CLAUDE_NAMES = listed(anthropic.types.Model)
GEMINI_NAMES = listed(google_names.Model)
EVERYTHING = ModelSettings(max_tokens=4000, temperature=0.5, top_p=0.5, thinking=2000)


def sent(model: OpenAIModel | AnthropicModel | GeminiModel, settings: ModelSettings) -> Any:
    return model.dialect("", (), settings).fields("")


@pytest.mark.parametrize("name", OPENAI_NAMES)
def test_every_name_in_openais_sdk_has_a_family(name: str):
    model = OpenAIModel(name, api_key="k")
    assert model.profile.context_window is not None
    fields = sent(model, EVERYTHING)
    if re.match(r"gpt-[5-9]|o[1-9]|codex", name):  # those that reason
        assert fields["max_completion_tokens"] == 4000
        assert fields.keys().isdisjoint({"max_tokens", "temperature", "top_p"})
    elif "search" not in name:
        assert (fields["max_tokens"], fields["temperature"]) == (4000, 0.5)


@pytest.mark.parametrize("name", CLAUDE_NAMES)
def test_every_name_in_anthropics_sdk_has_a_family(name: str):
    model = AnthropicModel(name, api_key="k")
    fields = sent(model, EVERYTHING)
    assert fields.keys().isdisjoint({"temperature", "top_p"})  # the SDK does not know them anymore
    if re.search(r"-4-[0-5]", name):
        assert fields["thinking"] == {"type": "enabled", "budget_tokens": 2000}
        assert model.profile.context_window == 200_000
    else:
        assert fields["thinking"] == {"type": "adaptive"}
        assert model.profile.context_window == 1_000_000


@pytest.mark.parametrize("name", GEMINI_NAMES)
def test_every_name_in_googles_sdk_has_a_family(name: str):
    config = sent(GeminiModel(name, api_key="k"), EVERYTHING)["generationConfig"]
    thinking = config.get("thinkingConfig", {})
    assert ("thinkingBudget" in thinking) == (
        name in {"gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"}
    )
    if re.search("gemma|image|tts", name):  # which refuse to be told
        assert "thinkingConfig" not in config


@pytest.mark.parametrize(
    ("provider", "names"),
    [(Provider.OpenAI, OPENAI_NAMES), (Provider.Anthropic, CLAUDE_NAMES)],
)
def test_context_windows_are_those_of_the_price_list(provider: Provider, names: list[str]):
    # Not genai_prices.data.providers: a type checker infers each of its 30,000 lines, for a minute.
    [seller] = [one for one in get_snapshot().providers if one.id == provider]
    for name in names:
        priced = seller.find_model(name)
        if name.endswith("-chat-latest"):
            continue  # they have less than the models that the list takes them for
        if priced is not None and priced.context_window is not None:
            window = profile_of(provider, name).context_window
            assert window == pytest.approx(priced.context_window, rel=0.06), name


def test_default_names_are_current_ones():
    defaults = {
        provider: find_model(provider).name.partition(":")[2]
        for provider in (Provider.OpenAI, Provider.Anthropic, Provider.Gemini)
    }
    assert defaults[Provider.OpenAI] in OPENAI_NAMES
    _, _, retired = inspect.getsource(openai_names).partition("Deprecated values")
    assert "gpt-5" in retired  # it is the right text
    assert f'"{defaults[Provider.OpenAI]}"' not in retired
    assert defaults[Provider.Anthropic] in CLAUDE_NAMES
    assert defaults[Provider.Anthropic] not in DEPRECATED_MODELS
    assert defaults[Provider.Gemini] in GEMINI_NAMES
    for provider, name in defaults.items():
        assert price(TokenUsage(input=1000), find_model(f"{provider}:{name}"))


@pytest.mark.parametrize(
    ("provider", "name", "same"),
    [
        (Provider.OpenAI, "openai/gpt-6-sol", "gpt-6-sol"),
        (Provider.OpenAI, "gpt-7-nova", "gpt-6-sol"),
        (Provider.OpenAI, "ft:gpt-4o-mini:acme", "gpt-4o-mini"),
        (Provider.Gemini, "models/gemini-2.5-pro", "gemini-2.5-pro"),
        (Provider.Anthropic, "claude-opus-10", "claude-opus-5-5"),
        (Provider.Anthropic, "anthropic/claude-opus-4-1", "claude-opus-4-1"),
    ],
)
def test_other_spellings_and_new_members_of_a_line_have_its_profile(
    provider: Provider, name: str, same: str
):
    assert profile_of(provider, name) == profile_of(provider, same)


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
    remedy = r"pip install 'openai\[aiohttp\]>=3' \(it is in 'treefold\[openai\]'\)"
    with pytest.raises(UsageError, match=f"openai:x needs a package .* installed: {remedy}"):
        required_package("no_such_package_of_openai", "openai[aiohttp]>=3", "openai", "openai:x")


def test_usages_add_up():
    one = TokenUsage(input=1, cache_read=2, cache_write=3, cache_write_1h=4, reasoning=5, output=6)
    assert (one + one).total == 2 * one.total == 42
    assert sum([one, one, one], TokenUsage()) == one + one + one
