"""Environment variables that hold API keys of model providers."""

from collections.abc import Mapping
from typing import Final

_SUFFIXES: Final = ("_API_KEY", "_API_KEYS", "_API_TOKEN")
_NAMES: Final = frozenset({
    "ANTHROPIC_AUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AZURE_OPENAI_AD_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_ADMIN_KEY",
})


def is_credential(name: str) -> bool:
    """Whether the environment variable *name* holds an API key of a provider.

    Example:
        >>> is_credential("OPENAI_API_KEY"), is_credential("PATH")
        (True, False)
    """
    return name.upper().endswith(_SUFFIXES) or name.upper() in _NAMES


def without_credentials(env: Mapping[str, str]) -> dict[str, str]:
    """Return *env* without API keys of providers, for programs that a model may run."""
    return {name: value for name, value in env.items() if not is_credential(name)}
