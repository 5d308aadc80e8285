"""Finds models by name."""

from typing import Final

from treefold.core.errors import InvalidValueError
from treefold.core.model import Model
from treefold.core.provider import Provider
from treefold.core.suggestions import did_you_mean
from treefold.models.anthropic.model import AnthropicModel
from treefold.models.failover import PREFIX, Failover
from treefold.models.gemini.model import GeminiModel
from treefold.models.local.model import LocalModel
from treefold.models.openai.model import LOCAL_SERVERS, OpenAIModel

DEFAULTS: Final = {
    Provider.Anthropic: "claude-opus-5-5",
    Provider.Gemini: "gemini-4-argon",
    Provider.OpenAI: "gpt-6.1-sol",
}


# Providers by the names that they have in other libraries.
_OTHER_NAMES: Final = {"google": Provider.Gemini, "openai-chat": Provider.OpenAI}


# Providers by how the names of their models begin.
_FAMILIES: Final = {
    "claude": Provider.Anthropic,
    "gemini": Provider.Gemini,
    "gpt": Provider.OpenAI,
    "chatgpt": Provider.OpenAI,
}


def find_model(name: str | Provider | Model) -> Model:
    """Return the model called *name*.

    A name is ``provider:model``, ``openai:model@address`` for any compatible server (the address
    may be ``llamacpp``, ``lmstudio``, ``ollama`` or ``vllm``; ``ollama:model`` is a short form),
    ``local``, ``local:NAME`` for a model that ``treefold local`` lists, or ``local:file.gguf``. The
    name of a provider alone selects its default model. ``failover:FIRST|SECOND`` is a Failover.
    ``google`` is another name of ``gemini``, and ``openai-chat`` of ``openai``.

    Example:
        >>> from treefold.models import find_model
        >>> find_model("openai:qwen3@http://localhost:1234/v1")
        <OpenAIModel openai:qwen3@http://localhost:1234/v1>
        >>> find_model("claude")
        Traceback (most recent call last):
            ...
        treefold.errors.InvalidValueError: no provider is called 'claude'; did you mean ...
    """
    if isinstance(name, Model):
        return name
    kind, _, rest = str(name).partition(":")
    if str(name).startswith(PREFIX):
        return Failover.named(str(name))
    if kind.lower() in LOCAL_SERVERS and rest:
        return OpenAIModel(rest, base_url=kind)
    try:
        provider = _OTHER_NAMES.get(kind.lower()) or Provider(kind.lower())
    except ValueError:
        raise InvalidValueError(
            f"no provider is called {kind!r}; {_suggestion(kind, rest)}write 'anthropic:MODEL',"
            " 'gemini:MODEL', 'openai:MODEL', 'openai:MODEL@ADDRESS', 'ollama:MODEL', or 'local'"
        ) from None
    if provider is Provider.Local:
        return LocalModel(rest or None)
    model, _, address = rest.partition("@")
    model = model or DEFAULTS[provider]
    if provider is Provider.OpenAI:
        return OpenAIModel(model, base_url=address or None)
    if address:
        kind = "AnthropicModel" if provider is Provider.Anthropic else "GeminiModel"
        raise InvalidValueError(
            f"{provider} models have no address; write '{provider}:{model}', or create the model:"
            f" {kind}({model!r}, base_url=...)"
        )
    return AnthropicModel(model) if provider is Provider.Anthropic else GeminiModel(model)


def _suggestion(kind: str, rest: str) -> str:
    """Return a question for a misspelt provider, or for a model without its provider."""
    name = kind.lower()
    for beginning, provider in _FAMILIES.items():
        if name.startswith(beginning) and not rest:
            meant = str(provider) if name == beginning else f"{provider}:{kind}"
            return f"did you mean {meant!r}? "
    return did_you_mean(name, [*Provider, *_OTHER_NAMES, *LOCAL_SERVERS], then=" ", ending=rest)
