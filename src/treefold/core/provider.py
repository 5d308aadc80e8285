"""The providers of models."""

from enum import StrEnum


class Provider(StrEnum):
    """The provider whose protocol a model speaks.

    Example:
        >>> from treefold import Provider
        >>> Provider("anthropic") is Provider.Anthropic
        True
    """

    OpenAI = "openai"  # and compatible servers
    Anthropic = "anthropic"
    Gemini = "gemini"
    Local = "local"
