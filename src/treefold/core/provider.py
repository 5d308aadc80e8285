"""Who provides models."""

from enum import StrEnum


class Provider(StrEnum):
    """Whose protocol a model speaks.

    Example:
        >>> from treefold import Provider
        >>> Provider("anthropic") is Provider.Anthropic
        True
    """

    OpenAI = "openai"  # and whatever is compatible with it
    Anthropic = "anthropic"
    Gemini = "gemini"
    Local = "local"
